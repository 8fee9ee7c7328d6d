// Implements torch::save and torch::load of the native optimizers: each group's options and each parameter's
// state.
#include <string>

#include <torch/serialize/archive.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/torch/native_optimizer.h"

namespace deepspeed::optim {
namespace {

using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

struct ToIValue {
  c10::IValue operator()(const std::pair<double, double>& pair) const {
    return std::vector<double>{pair.first, pair.second};
  }
  template <class T>
  c10::IValue operator()(const T& value) const {
    return value;
  }
};

// Reads an option's value with the type that the option currently has.
struct FromIValue {
  const c10::IValue& from;
  HyperparameterValue operator()(bool) const { return from.toBool(); }
  HyperparameterValue operator()(int64_t) const { return from.toInt(); }
  HyperparameterValue operator()(double) const { return from.toDouble(); }
  HyperparameterValue operator()(const std::string&) const { return from.toStringRef(); }
  HyperparameterValue operator()(const std::pair<double, double>&) const {
    const auto values = from.toDoubleVector();
    return std::pair{values.at(0), values.at(1)};
  }
};

c10::IValue read(InputArchive& archive, const std::string& key) {
  c10::IValue value;
  if (!archive.try_read(key, value)) {
    raise<UsageError>("the archive holds no '", key, "'; load one that torch::save wrote of this class");
  }
  return value;
}

OutputArchive written_state(const SliceState& state) {
  OutputArchive archive;
  archive.write("step", c10::IValue(state.step));
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state.tensors) {
    names.push_back(name);
    archive.write("tensor." + name, tensor);
  }
  archive.write("names", c10::IValue(names));
  return archive;
}

SliceState read_slice_state(InputArchive& archive) {
  SliceState state;
  state.step = read(archive, "step").toInt();
  const c10::IValue names = read(archive, "names");
  for (const c10::IValue& name : names.toListRef()) {
    at::Tensor tensor;
    archive.read("tensor." + name.toStringRef(), tensor);
    state.tensors.emplace_back(name.toStringRef(), tensor);
  }
  return state;
}

}  // namespace

void NativeOptimizer::save(OutputArchive& archive) const {
  archive.write("class_name", c10::IValue(name()));
  archive.write("num_groups", c10::IValue(static_cast<int64_t>(param_groups().size())));
  for (size_t g = 0; g < param_groups().size(); ++g) {
    const auto& group = param_groups()[g];
    OutputArchive written;
    const Hyperparameters options = dynamic_cast<const NativeOptions&>(group.options()).hyperparameters();
    for (const auto& [key, value] : options.items()) {
      written.write("option." + key, std::visit(ToIValue{}, value));
    }
    written.write("num_params", c10::IValue(static_cast<int64_t>(group.params().size())));
    for (size_t p = 0; p < group.params().size(); ++p) {
      OutputArchive state = written_state(state_of(group.params()[p]));
      written.write("param." + std::to_string(p), state);
    }
    archive.write("group." + std::to_string(g), written);
  }
}

void NativeOptimizer::load(InputArchive& archive) {
  const std::string written_by = read(archive, "class_name").toStringRef();
  if (written_by != name()) {
    raise<UsageError>("the archive is of a ", written_by, ", expected a ", name(),
                      "; load it into the class that wrote it");
  }
  if (read(archive, "num_groups").toInt() != static_cast<int64_t>(param_groups().size())) {
    raise<UsageError>("the archive is of ", read(archive, "num_groups").toInt(), " groups, expected ",
                      param_groups().size(), "; make the optimizer with the groups that were saved");
  }
  for (size_t g = 0; g < param_groups().size(); ++g) {
    auto& group = param_groups()[g];
    InputArchive written;
    archive.read("group." + std::to_string(g), written);
    const int64_t num_params = read(written, "num_params").toInt();
    if (num_params != static_cast<int64_t>(group.params().size())) {
      raise<UsageError>("group ", g, " of the archive has ", num_params, " parameters, expected ",
                        group.params().size(), "; make the group of the parameters that were saved");
    }
    auto& options = dynamic_cast<NativeOptions&>(group.options());
    const Hyperparameters present = options.hyperparameters();
    Hyperparameters values = present;
    for (const auto& [key, value] : present.items()) {
      values.set(key, std::visit(FromIValue{read(written, "option." + key)}, value));
    }
    options.set_hyperparameters(values);
    for (size_t p = 0; p < group.params().size(); ++p) {
      InputArchive state_archive;
      written.read("param." + std::to_string(p), state_archive);
      const SliceState state = read_slice_state(state_archive);
      if (state.step > 0) {
        load_state_of(group.params()[p], state);
      }
    }
  }
}

}  // namespace deepspeed::optim
