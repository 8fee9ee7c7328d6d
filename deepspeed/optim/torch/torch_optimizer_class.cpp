// Builds one table entry, from small templates, for each supported class of torch::optim.
//
// StateTraits list the tensors of a class's state, their names in Python, and whether they are required.
// read_state() and make_state() iterate over that list. The read_...() and write_...() functions translate
// options to hyperparameters and back. find_torch_optimizer_class() compares exact types: a derived class may
// behave differently and counts as unknown.
#include "deepspeed/optim/torch/torch_optimizer_class.h"

#include <array>
#include <typeinfo>

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

template <class Options>
void read_adam(const to::OptimizerOptions& from, Hyperparameters& h) {
  const auto& o = static_cast<const Options&>(from);
  h.set("lr", o.lr());
  h.set("betas", std::pair{std::get<0>(o.betas()), std::get<1>(o.betas())});
  h.set("eps", o.eps());
  h.set("weight_decay", o.weight_decay());
  h.set("amsgrad", o.amsgrad());
}

template <class Options>
void write_adam(const Hyperparameters& h, to::OptimizerOptions& options) {
  const auto betas = h.pair("betas");
  static_cast<Options&>(options)
      .lr(h.number("lr"))
      .betas({betas.first, betas.second})
      .eps(h.number("eps"))
      .weight_decay(h.number("weight_decay"))
      .amsgrad(h.flag("amsgrad"));
}

void read_sgd(const to::OptimizerOptions& from, Hyperparameters& h) {
  const auto& o = static_cast<const to::SGDOptions&>(from);
  h.set("lr", o.lr());
  h.set("momentum", o.momentum());
  h.set("dampening", o.dampening());
  h.set("weight_decay", o.weight_decay());
  h.set("nesterov", o.nesterov());
}

void write_sgd(const Hyperparameters& h, to::OptimizerOptions& options) {
  static_cast<to::SGDOptions&>(options)
      .lr(h.number("lr"))
      .momentum(h.number("momentum"))
      .dampening(h.number("dampening"))
      .weight_decay(h.number("weight_decay"))
      .nesterov(h.flag("nesterov"));
}

void read_rmsprop(const to::OptimizerOptions& from, Hyperparameters& h) {
  const auto& o = static_cast<const to::RMSpropOptions&>(from);
  h.set("lr", o.lr());
  h.set("alpha", o.alpha());
  h.set("eps", o.eps());
  h.set("weight_decay", o.weight_decay());
  h.set("momentum", o.momentum());
  h.set("centered", o.centered());
}

void write_rmsprop(const Hyperparameters& h, to::OptimizerOptions& options) {
  static_cast<to::RMSpropOptions&>(options)
      .lr(h.number("lr"))
      .alpha(h.number("alpha"))
      .eps(h.number("eps"))
      .weight_decay(h.number("weight_decay"))
      .momentum(h.number("momentum"))
      .centered(h.flag("centered"));
}

void read_adagrad(const to::OptimizerOptions& from, Hyperparameters& h) {
  const auto& o = static_cast<const to::AdagradOptions&>(from);
  h.set("lr", o.lr());
  h.set("lr_decay", o.lr_decay());
  h.set("weight_decay", o.weight_decay());
  h.set("eps", o.eps());
  h.set("initial_accumulator_value", o.initial_accumulator_value());
}

void write_adagrad(const Hyperparameters& h, to::OptimizerOptions& options) {
  static_cast<to::AdagradOptions&>(options)
      .lr(h.number("lr"))
      .lr_decay(h.number("lr_decay"))
      .weight_decay(h.number("weight_decay"))
      .eps(h.number("eps"))
      .initial_accumulator_value(h.number("initial_accumulator_value"));
}

const std::array<TorchOptimizerClass, 5> kClasses = {{
    {"Adam", is<to::Adam>, read_adam<to::AdamOptions>, write_adam<to::AdamOptions>,
     read_state<to::AdamParamState>, make_state<to::AdamParamState>, made_by_torch},
    {"AdamW", is<to::AdamW>, read_adam<to::AdamWOptions>, write_adam<to::AdamWOptions>,
     read_state<to::AdamWParamState>, make_state<to::AdamWParamState>, made_by_torch},
    {"SGD", is<to::SGD>, read_sgd, write_sgd, read_state<to::SGDParamState>, make_state<to::SGDParamState>,
     made_by_torch},
    {"RMSprop", is<to::RMSprop>, read_rmsprop, write_rmsprop, read_state<to::RMSpropParamState>,
     make_state<to::RMSpropParamState>, made_by_torch},
    {"Adagrad", is<to::Adagrad>, read_adagrad, write_adagrad, read_state<to::AdagradParamState>,
     make_state<to::AdagradParamState>, initial_adagrad},
}};

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
