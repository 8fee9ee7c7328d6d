#include "deepspeed/checkpoint/optimizer_files.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/layout.h"
#include "deepspeed/checkpoint/plain_optimizer.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kOptimizerFilesWhere = "checkpoint";

/// Where the parameters lie in a rank's partition, for files that do not say so: one after the other.
void place_by_shapes(const NamedShapes& shapes, int64_t partition_begin, PartitionStates& group) {
  const Interval partition{partition_begin, partition_begin + group.fp32.numel()};
  int64_t begin = 0;
  for (const auto& [name, sizes] : shapes) {
    int64_t numel = 1;
    for (const int64_t size : sizes) numel *= size;
    const Interval common = intersect({begin, begin + numel}, partition);
    if (!common.empty())
      group.fragments.emplace_back(name, FragmentAddress{common.numel(), common.begin - partition.begin});
    begin += numel;
  }
}

}  // namespace

OptimizerFiles OptimizerFiles::of_partitions(const std::filesystem::path& dir, const std::string& tag,
                                             const Manifest& manifest,
                                             const std::optional<std::vector<NamedShapes>>& shapes) {
  const std::vector<OptimStatesFile> files = find_optim_states(dir, tag);
  require_each_rank(files, dir, tag);
  OptimizerFiles result;
  std::vector<int64_t> partition_begins;  // by group
  for (const OptimStatesFile& entry : files) {
    result.files_.push_back(std::make_shared<DeferredArchive>(entry.path, manifest.sums_of(entry.path)));
    const DeferredArchive& file = *result.files_.back();
    ZeroOptimizerStates states = parse_optimizer_states(file.value());
    if (entry.dp_rank == 0) {
      result.loss_scaler_ = states.loss_scaler;
      result.groups_.resize(states.groups.size());
      partition_begins.resize(states.groups.size());
    }
    if (states.groups.size() != result.groups_.size()) {
      raise<CheckpointError>(kOptimizerFilesWhere, entry.path, " has ", states.groups.size(),
                             " parameter groups, that of rank 0 has ", result.groups_.size());
    }
    for (size_t index = 0; index < states.groups.size(); ++index) {
      PartitionStates& group = states.groups[index];
      if (group.partition_count != int64_t(files.size())) {
        raise<CheckpointError>(kOptimizerFilesWhere, dir / tag, " has the optimizer files of ", files.size(),
                               " ranks, expected ", group.partition_count);
      }
      if (group.fragments.empty() && shapes && index < shapes->size())
        place_by_shapes((*shapes)[index], partition_begins[index], group);
      partition_begins[index] += group.fp32.numel() + group.padding;
    }
    result.add_partition(file, states);
  }
  return result;
}

void OptimizerFiles::add_partition(const DeferredArchive& file, const ZeroOptimizerStates& states) {
  for (size_t index = 0; index < states.groups.size(); ++index) {
    const PartitionStates& group = states.groups[index];
    groups_[index].step = std::max(groups_[index].step, group.step.value_or(0));
    groups_[index].options = group.options;
    for (const auto& [name, tensor] : group.tensors) {
      // A state that is no array (DeepSpeed's optimizers keep some) belongs to the group, not to its
      // elements.
      if (tensor.numel() < group.fp32.numel() || tensor.dim() != 1) continue;
      note_state(index, name, tensor.scalar_type());
    }
    for (const auto& [parameter, address] : group.fragments) {
      add_piece(parameter, kMasterState, file, group.fp32, address.start, address.numel);
      for (const auto& [name, type] : groups_[index].states) {
        const auto state = std::ranges::find(group.tensors, name, &std::pair<std::string, at::Tensor>::first);
        if (state != group.tensors.end())
          add_piece(parameter, name, file, state->second, address.start, address.numel);
      }
    }
  }
}

OptimizerFiles OptimizerFiles::of_model_file(std::shared_ptr<DeferredArchive> file, const Value& optimizer,
                                             const std::vector<std::vector<std::string>>& names) {
  OptimizerFiles result;
  const PlainOptimizerStates states = parse_plain_optimizer(optimizer);
  if (states.groups.size() != names.size()) {
    raise<CheckpointError>(kOptimizerFilesWhere, file->path(), " has ", states.groups.size(),
                           " parameter groups, the optimizer has ", names.size());
  }
  result.loss_scaler_ = states.loss_scaler;
  result.groups_.resize(states.groups.size());
  for (size_t index = 0; index < states.groups.size(); ++index) {
    const PlainGroupStates& group = states.groups[index];
    if (group.params.size() != names[index].size()) {
      raise<CheckpointError>(kOptimizerFilesWhere, "parameter group ", index, " of ", file->path(), " has ",
                             group.params.size(), " parameters, the optimizer's has ", names[index].size());
    }
    result.groups_[index].options = group.options;
    int64_t flat = 0;
    for (size_t param = 0; param < group.params.size(); ++param) {
      const std::string& name = names[index][param];
      result.groups_[index].step = std::max(result.groups_[index].step, group.params[param].step);
      int64_t numel = 0;
      for (const auto& [state, tensor] : group.params[param].tensors) {
        result.note_state(index, state, tensor.scalar_type());
        result.add_piece(name, state, *file, tensor, 0, tensor.numel());
        numel = tensor.numel();
      }
      // The masters of a group lie one after the other; a parameter without a state has no size here.
      if (!group.fp32_flat.defined()) continue;
      if (numel == 0) {
        raise<CheckpointError>(kOptimizerFilesWhere, file->path(), " has no state of '", name,
                               "'; load with load_optimizer_states = false");
      }
      result.add_piece(name, kMasterState, *file, group.fp32_flat, flat, numel);
      flat += numel;
    }
  }
  result.files_.push_back(std::move(file));
  return result;
}

void OptimizerFiles::note_state(size_t group, const std::string& name, at::ScalarType type) {
  auto& states = groups_[group].states;
  if (std::ranges::find(states, name, &std::pair<std::string, at::ScalarType>::first) == states.end())
    states.emplace_back(name, type);
}

void OptimizerFiles::add_piece(const std::string& parameter, const std::string& state,
                               const DeferredArchive& file, const at::Tensor& tensor, int64_t begin,
                               int64_t numel) {
  if (begin < 0 || numel < 0 || begin > tensor.numel() || numel > tensor.numel() - begin) {
    raise<CheckpointError>(kOptimizerFilesWhere, file.path(), ": '", state, "' of '", parameter,
                           "' lies from element ", begin, " to ", begin + numel, " of ", tensor.numel());
  }
  auto& pieces = pieces_[{parameter, state}];
  const int64_t done = pieces.empty() ? 0 : pieces.back().in_param.end;
  pieces.push_back({&file, tensor, begin, {done, done + numel}});
}

int64_t OptimizerFiles::numel(const std::string& parameter, const std::string& state) const {
  if (const auto file = state_files_.find({parameter, state}); file != state_files_.end())
    return file->second.numel;
  const auto found = pieces_.find({parameter, state});
  return found == pieces_.end() ? 0 : found->second.back().in_param.end;
}

void OptimizerFiles::read(const std::string& parameter, const std::string& state, const Interval& elements,
                          const at::Tensor& destination) const {
  if (elements.end > numel(parameter, state)) {
    raise<CheckpointError>(kOptimizerFilesWhere, "the optimizer files hold ", numel(parameter, state),
                           " elements of the state '", state, "' of '", parameter, "', expected at least ",
                           elements.end, "; load with load_optimizer_states = false");
  }
  if (elements.empty()) return;
  if (const auto file = state_files_.find({parameter, state}); file != state_files_.end())
    return read_state_file(file->second, elements, destination);
  for (const Piece& piece : pieces_.at({parameter, state})) {
    const Interval common = intersect(elements, piece.in_param);
    if (common.empty()) continue;
    const int64_t begin = piece.begin + common.begin - piece.in_param.begin;
    const at::Tensor into = destination.narrow(0, common.begin - elements.begin, common.numel());
    if (piece.tensor.is_contiguous()) {
      piece.file->read(piece.tensor, {begin, begin + common.numel()}, into);
    } else {
      into.copy_(piece.file->load(piece.tensor).reshape({-1}).narrow(0, begin, common.numel()));
    }
  }
}

uint64_t OptimizerFiles::bytes_read() const {
  uint64_t bytes = closed_bytes_;
  for (const auto& file : files_) bytes += file->bytes_read();
  return bytes;
}

}  // namespace deepspeed::checkpoint
