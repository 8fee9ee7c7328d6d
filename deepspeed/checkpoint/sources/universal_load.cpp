// Reads universal checkpoints, which have one file per state of a parameter.
#include <algorithm>
#include <utility>

#include <c10/util/accumulate.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/content/json_value.h"
#include "deepspeed/checkpoint/content/loss_scaler_states.h"
#include "deepspeed/checkpoint/sources/optimizer_files.h"
#include "deepspeed/checkpoint/tag/layout.h"

namespace deepspeed::checkpoint {
namespace {

using std::filesystem::path;

/// Adds the file's name to an error in its content.
template <class Function>
auto of_file(const path& file, Function parse) {
  try {
    return parse();
  } catch (const CheckpointError& error) {
    raise<CheckpointError>(file, " is not a file of a universal checkpoint: ", error.what());
  }
}

/// Returns the tensor of a state file. The file holds only the tensor, flat if it comes from stage 3, or a
/// dict with the tensor that also tells how it was cut.
at::Tensor tensor_of(const DeferredArchive& file) {
  const Value& value = file.value();
  if (value.get_if<at::Tensor>() != nullptr) return value.as_tensor();
  return of_file(file.path(), [&] { return value.as_dict().at("param").as_tensor(); });
}

bool is_vocabulary(const DeferredArchive& file) {
  const auto* dict = file.value().get_if<Dict>();
  const Value* mark = dict == nullptr ? nullptr : dict->find("vocab_tensor");
  return mark != nullptr && mark->as_bool();
}

/// Returns whether the tensor can hold a parameter of that shape. It may be flat. A vocabulary may lack
/// padding rows.
bool fits(const at::Tensor& tensor, const std::vector<int64_t>& sizes, bool vocabulary) {
  const at::IntArrayRef expected(sizes);
  if (tensor.sizes() == expected) return true;
  if (vocabulary && !expected.empty() && tensor.dim() == int64_t(expected.size()))
    return tensor.sizes().slice(1) == expected.slice(1) && tensor.size(0) <= expected[0];
  return tensor.dim() == 1 && tensor.numel() == c10::multiply_integers(expected);
}

}  // namespace

OptimizerFiles OptimizerFiles::of_universal(const path& folder, const TagArchives& archives,
                                            const std::vector<NamedShapes>& params) {
  const path common = universal_optimizer_path(folder);
  if (!std::filesystem::exists(common)) {
    raise<CheckpointError>("the file ", common,
                           " is missing: the folder is not a universal checkpoint; ds_to_universal makes "
                           "one, and without checkpoint.load_universal the engine loads other checkpoints");
  }
  const Value file = archives.read(common);
  OptimizerFiles result;
  const std::vector<Value> groups = of_file(common, [&] {
    if (const Value* scaler = file.as_dict().find("loss_scaler"))
      result.loss_scaler_ = parse_loss_scaler(*scaler);
    return file.as_dict().at("param_groups").as_sequence();
  });
  if (groups.size() != params.size()) {
    raise<CheckpointError>(common, " has ", groups.size(), " parameter groups, the optimizer has ",
                           params.size());
  }
  for (size_t index = 0; index < groups.size(); ++index)
    result.add_universal_group(folder, archives, groups[index], params[index]);
  if (const Value* numbers = file.as_dict().find(kParameterNumbers))
    result.add_universal_numbers(of_file(common, [&] { return parse_parameter_numbers(*numbers); }), params);
  return result;
}

void OptimizerFiles::add_universal_numbers(const ParameterNumbers& numbers,
                                           const std::vector<NamedShapes>& params) {
  for (const auto& [number, by_parameter] : numbers) {
    for (size_t index = 0; index < params.size(); ++index) {
      for (const auto& [name, sizes] : params[index]) {
        const auto found = by_parameter.find(name);
        if (found != by_parameter.end()) groups_[index].numbers[number][name] = found->second;
      }
    }
  }
}

void OptimizerFiles::add_universal_group(const path& folder, const TagArchives& archives,
                                         const Value& options, const NamedShapes& params) {
  const size_t index = groups_.size();
  groups_.emplace_back();
  for (const auto& [name, option] : options.as_dict().items()) {
    if (name.as_string() != "params" && name.as_string() != "param_names")
      groups_[index].options[name.as_string()] = json_of_value(option);
  }
  for (const auto& [name, sizes] : params) {
    for (const auto& [state, file] : find_universal_states(folder, name)) {
      const auto archive = archives.open(file);
      if (state == kStepState) {
        const Value step = archive->load(archive->value());
        groups_[index].step = std::max(groups_[index].step, of_file(file, [&] { return step.as_int(); }));
      } else {
        add_state_file(index, name, state, sizes, *archive,
                       {file, archives.manifest().sums_of(file, folder)});
      }
    }
  }
  std::vector<std::string> expected{kMasterState};
  for (const auto& [state, type] : groups_[index].states) expected.push_back(state);
  for (const auto& [name, sizes] : params) {
    for (const std::string& state : expected) {
      if (state_files_.contains({name, state})) continue;
      raise<CheckpointError>("the file ", universal_state_path(folder, name, state), " is missing");
    }
  }
}

void OptimizerFiles::add_state_file(size_t group, const std::string& parameter, const std::string& state,
                                    const std::vector<int64_t>& sizes, const DeferredArchive& archive,
                                    StateFile file) {
  const at::Tensor tensor = tensor_of(archive);
  file.zeros_follow = is_vocabulary(archive);
  file.numel = c10::multiply_integers(sizes);
  if (!fits(tensor, sizes, file.zeros_follow)) {
    raise<CheckpointError>(file.path, " holds the sizes ", tensor.sizes(), ", the model's '", parameter,
                           "' has ", at::IntArrayRef(sizes));
  }
  if (state != kMasterState) note_state(group, state, tensor.scalar_type());
  closed_bytes_ += archive.bytes_read();
  state_files_.emplace(std::pair(parameter, state), std::move(file));
}

void OptimizerFiles::read_state_file(const StateFile& file, const Interval& elements,
                                     const at::Tensor& destination) const {
  DeferredArchive archive(file.path, file.sums);
  if (file.is_checked) archive.trust();
  const at::Tensor tensor = tensor_of(archive);
  const Interval held = intersect(elements, {0, tensor.numel()});
  const at::Tensor into = destination.narrow(0, 0, held.numel());
  if (tensor.is_contiguous() && !held.empty()) {
    archive.read(tensor, held, into);
  } else if (!held.empty()) {
    into.copy_(archive.load(tensor).reshape({-1}).narrow(0, held.begin, held.numel()));
  }
  archive.check_rest();
  file.is_checked = file.is_checked || !held.empty();
  destination.narrow(0, held.numel(), elements.numel() - held.numel()).zero_();
  closed_bytes_ += archive.bytes_read();
}

}  // namespace deepspeed::checkpoint
