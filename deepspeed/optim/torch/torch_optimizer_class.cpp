// Builds one table entry, from small templates, for each supported class of torch::optim.
//
// StateTraits list the tensors of a class's state, their names in Python, and whether they are required.
// read_state() and make_state() iterate over that list. The ...OptionNames list a class's options, by which
// read_options() and write_options() translate them to hyperparameters and back. find_torch_optimizer_class()
// compares exact types: a derived class may behave differently and counts as unknown.
#include "deepspeed/optim/torch/torch_optimizer_class.h"

#include <array>
#include <tuple>
#include <typeinfo>
#include <utility>

#include <ATen/ops/full_like.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "deepspeed/base/error.h"

namespace deepspeed::optim {
namespace {

namespace to = torch::optim;

template <class Class>
bool is(const to::Optimizer& optimizer) {
  return typeid(optimizer) == typeid(Class);
}

template <class State>
struct StateTensor {
  const char* name;
  at::Tensor& (*of)(State&);
  bool required;
};

template <class State>
struct StateTraits;

template <class State>
std::array<StateTensor<State>, 3> adam_tensors() {
  return {{{"exp_avg", [](State& s) -> at::Tensor& { return s.exp_avg(); }, true},
           {"exp_avg_sq", [](State& s) -> at::Tensor& { return s.exp_avg_sq(); }, true},
           {"max_exp_avg_sq", [](State& s) -> at::Tensor& { return s.max_exp_avg_sq(); }, false}}};
}

template <>
struct StateTraits<to::AdamParamState> {
  static auto tensors() { return adam_tensors<to::AdamParamState>(); }
};
template <>
struct StateTraits<to::AdamWParamState> {
  static auto tensors() { return adam_tensors<to::AdamWParamState>(); }
};
template <>
struct StateTraits<to::SGDParamState> {
  static std::array<StateTensor<to::SGDParamState>, 1> tensors() {
    return {{{"momentum_buffer", [](to::SGDParamState& s) -> at::Tensor& { return s.momentum_buffer(); },
              false}}};
  }
};
template <>
struct StateTraits<to::RMSpropParamState> {
  using State = to::RMSpropParamState;
  static std::array<StateTensor<State>, 3> tensors() {
    return {{{"square_avg", [](State& s) -> at::Tensor& { return s.square_avg(); }, true},
             {"momentum_buffer", [](State& s) -> at::Tensor& { return s.momentum_buffer(); }, false},
             {"grad_avg", [](State& s) -> at::Tensor& { return s.grad_avg(); }, false}}};
  }
};
template <>
struct StateTraits<to::AdagradParamState> {
  static std::array<StateTensor<to::AdagradParamState>, 1> tensors() {
    return {{{"sum", [](to::AdagradParamState& s) -> at::Tensor& { return s.sum(); }, true}}};
  }
};

template <class State>
SliceState read_state(const to::OptimizerParamState& from) {
  State copy = static_cast<const State&>(from);
  SliceState state;
  for (const auto& tensor : StateTraits<State>::tensors()) {
    if (tensor.of(copy).defined()) {
      state.tensors.emplace_back(tensor.name, tensor.of(copy));
    }
  }
  if constexpr (requires { copy.step(); }) {
    state.step = copy.step();
  }
  return state;
}

template <class State>
std::unique_ptr<to::OptimizerParamState> make_state(const SliceState& from) {
  auto state = std::make_unique<State>();
  for (const auto& [name, value] : from.tensors) {
    bool known = false;
    for (const auto& tensor : StateTraits<State>::tensors()) {
      if (name == tensor.name) {
        tensor.of(*state) = value;
        known = true;
      }
    }
    if (!known) {
      raise<UsageError>("the state holds '", name, "', which this optimizer does not know");
    }
  }
  for (const auto& tensor : StateTraits<State>::tensors()) {
    if (tensor.required && !tensor.of(*state).defined()) {
      raise<UsageError>("the state holds no tensor '", tensor.name, "'");
    }
  }
  if constexpr (requires { state->step(from.step); }) {
    state->step(from.step);
  }
  return state;
}

std::unique_ptr<to::OptimizerParamState> made_by_torch(const to::OptimizerOptions&, const at::Tensor&) {
  return nullptr;
}

std::unique_ptr<to::OptimizerParamState> initial_adagrad(const to::OptimizerOptions& options,
                                                         const at::Tensor& parameter) {
  auto state = std::make_unique<to::AdagradParamState>();
  const auto& adagrad = static_cast<const to::AdagradOptions&>(options);
  state->sum(at::full_like(parameter, adagrad.initial_accumulator_value()));
  return state;
}

struct AdamOptionNames {
  static void visit(auto& options, const auto& visitor) {
    visitor("lr", options.lr());
    visitor("betas", options.betas());
    visitor("eps", options.eps());
    visitor("weight_decay", options.weight_decay());
    visitor("amsgrad", options.amsgrad());
  }
};
struct SgdOptionNames {
  static void visit(auto& options, const auto& visitor) {
    visitor("lr", options.lr());
    visitor("momentum", options.momentum());
    visitor("dampening", options.dampening());
    visitor("weight_decay", options.weight_decay());
    visitor("nesterov", options.nesterov());
  }
};
struct RmspropOptionNames {
  static void visit(auto& options, const auto& visitor) {
    visitor("lr", options.lr());
    visitor("alpha", options.alpha());
    visitor("eps", options.eps());
    visitor("weight_decay", options.weight_decay());
    visitor("momentum", options.momentum());
    visitor("centered", options.centered());
  }
};
struct AdagradOptionNames {
  static void visit(auto& options, const auto& visitor) {
    visitor("lr", options.lr());
    visitor("lr_decay", options.lr_decay());
    visitor("weight_decay", options.weight_decay());
    visitor("eps", options.eps());
    visitor("initial_accumulator_value", options.initial_accumulator_value());
  }
};

template <class Options, class Names>
void read_options(const to::OptimizerOptions& from, Hyperparameters& h) {
  Names::visit(static_cast<const Options&>(from), [&h](const char* name, const auto& value) {
    if constexpr (requires { std::get<1>(value); }) {
      h.set(name, std::pair{std::get<0>(value), std::get<1>(value)});
    } else {
      h.set(name, value);
    }
  });
}

template <class Options, class Names>
void write_options(const Hyperparameters& h, to::OptimizerOptions& options) {
  Names::visit(static_cast<Options&>(options), [&h](const char* name, auto& value) { h.read(name, value); });
}

template <class Class, class Options, class Names, class State>
constexpr TorchOptimizerClass class_of(
    const char* name, decltype(TorchOptimizerClass::initial_state) initial_state = made_by_torch) {
  return {name,
          is<Class>,
          read_options<Options, Names>,
          write_options<Options, Names>,
          read_state<State>,
          make_state<State>,
          initial_state};
}

constexpr std::array kClasses = {
    class_of<to::Adam, to::AdamOptions, AdamOptionNames, to::AdamParamState>("Adam"),
    class_of<to::AdamW, to::AdamWOptions, AdamOptionNames, to::AdamWParamState>("AdamW"),
    class_of<to::SGD, to::SGDOptions, SgdOptionNames, to::SGDParamState>("SGD"),
    class_of<to::RMSprop, to::RMSpropOptions, RmspropOptionNames, to::RMSpropParamState>("RMSprop"),
    class_of<to::Adagrad, to::AdagradOptions, AdagradOptionNames, to::AdagradParamState>("Adagrad",
                                                                                         initial_adagrad),
};

}  // namespace

const TorchOptimizerClass* find_torch_optimizer_class(const to::Optimizer& optimizer) {
  for (const TorchOptimizerClass& known : kClasses) {
    if (known.matches(optimizer)) {
      return &known;
    }
  }
  return nullptr;
}

}  // namespace deepspeed::optim
