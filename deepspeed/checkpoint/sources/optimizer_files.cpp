// Gives files of any stage one form: a list of pieces for each state of each parameter.
//
// of_partitions() (stages 1 to 3) opens every rank's file. From the model file's shapes it computes where
// each parameter lies in each rank's flat tensors (place_parameters for stages 1 and 2, place_shards_of_ranks
// for stage 3). It checks ranks, groups and sizes, and adds the pieces rank by rank, in the order of the
// parameter's elements. of_model_file() (stage 0) adds whole states, or intervals of flat ones.
// of_universal(), the third source, is in universal_load.cpp. read() then copies an interval from the pieces
// that overlap it.
#include "deepspeed/checkpoint/sources/optimizer_files.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/checkpoint/sources/misfit_error.h"
#include "deepspeed/checkpoint/sources/numel_of.h"
#include "deepspeed/checkpoint/sources/shard_places.h"
#include "deepspeed/checkpoint/sources/states_of_one_rank.h"
#include "deepspeed/checkpoint/tag/layout.h"

namespace deepspeed::checkpoint {
namespace {

/// Returns the flat parameters in the order given by files of DeepSpeed's BF16_Optimizer. Throws
/// CheckpointError for files of other kinds, whose order may be wrong.
std::vector<NamedShapes> shapes_of_fragments(const std::vector<OptimStatesFile>& files,
                                             const std::vector<ZeroOptimizerStates>& ranks) {
  std::vector<NamedShapes> shapes(ranks.front().groups.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].is_of_bf16_optimizer || ranks[rank].groups.size() != shapes.size()) {
      raise<CheckpointError>(files[rank].path.parent_path(),
                             " has no 'param_shapes' in its model file, which say what the optimizer files "
                             "hold; load with load_optimizer_states = false");
    }
    for (size_t index = 0; index < shapes.size(); ++index) {
      NamedShapes& group = shapes[index];
      int64_t end = 0;
      for (const auto& [name, address] : ranks[rank].groups[index].fragments) {
        if (address.start != end || address.numel < 0) {
          raise<CheckpointError>(files[rank].path, ": the fragment of '", name, "' has ", address.numel,
                                 " elements from ", address.start, ", expected it at ", end);
        }
        end += address.numel;
        const bool goes_on =
            !group.empty() && group.back().first == name;  // continued from the previous rank
        if (!goes_on) group.emplace_back(name, std::vector<int64_t>{0});
        group.back().second.front() += address.numel;
      }
    }
  }
  return shapes;
}

template <class Failure>
void require_groups(size_t found, size_t expected, const std::filesystem::path& file, const char* of) {
  if (found == expected) return;
  raise<Failure>(file, " has ", found, " parameter groups, ", of, " ", expected);
}

void require_rank_count(int64_t partition_count, int64_t num_ranks, const std::filesystem::path& file) {
  if (partition_count == num_ranks) return;
  raise<CheckpointError>(file.parent_path(), " has the optimizer files of ", num_ranks, " ranks, expected ",
                         partition_count);
}

/// Records where the parameters of group `index` lie in each rank's partition. `ranks` holds what was read
/// from `files`, one entry per file, and receives the places. Throws CheckpointError, naming the file, if the
/// sizes do not fit.
void place_parameters(const NamedShapes& shapes, size_t index, const std::vector<OptimStatesFile>& files,
                      std::vector<ZeroOptimizerStates>& ranks) {
  const auto num_ranks = int64_t(ranks.size());
  const auto size_on = [&](int64_t rank) {
    return ranks[rank].groups[index].fp32.numel() + ranks[rank].groups[index].padding;
  };
  const int64_t size = size_on(0), numel = numel_of(shapes);
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    PartitionStates& group = ranks[rank].groups[index];
    require_rank_count(group.partition_count, num_ranks, files[rank].path);
    if (size_on(rank) != size) {
      raise<CheckpointError>(files[rank].path, " has ", size_on(rank), " elements of parameter group ", index,
                             " with padding, the file of rank 0 ", size);
    }
  }
  require_own_parts(shapes, index, ranks, [&](size_t rank) { return files[rank].path; });
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    PartitionStates& group = ranks[rank].groups[index];
    group.fragments = fragments_in(shapes, {rank * size, rank * size + group.fp32.numel()});
  }
  // The end is padding, less than one unit of DeepSpeed's alignment.
  if (size * num_ranks >= numel && size * num_ranks - numel < 2 * num_ranks) return;
  raise<CheckpointError>("parameter group ", index, " has ", numel,
                         " elements in the model file, the optimizer files of ", files[0].path.parent_path(),
                         " hold ", size * num_ranks, " with padding");
}

/// Sets in `ranks`, the contents of `files`, where shards lie in each sub-group of stage 3. Throws
/// CheckpointError if the sizes do not fit.
void place_shards_of_ranks(const std::vector<NamedShapes>& shapes, const std::vector<OptimStatesFile>& files,
                           std::vector<ZeroOptimizerStates>& ranks) {
  std::vector<std::pair<std::string, int64_t>> params;
  std::vector<int64_t> numels;
  for (const NamedShapes& group : shapes) {
    for (const auto& [name, sizes] : group) {
      params.emplace_back(name, numel_of(sizes));
      numels.push_back(params.back().second);
    }
  }
  const auto num_ranks = int64_t(ranks.size());
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    std::vector<PartitionStates>& groups = ranks[rank].groups;
    std::vector<int64_t> sub_groups;
    for (const PartitionStates& group : groups) {
      require_rank_count(group.partition_count, num_ranks, files[rank].path);
      sub_groups.push_back(group.fp32.numel());
    }
    const auto places = place_shards(numels, sub_groups, num_ranks, files[rank].path);
    for (size_t param = 0; param < params.size(); ++param) {
      const Interval elements = shard_elements(numels[param], num_ranks, rank);
      if (elements.empty()) continue;
      groups[places[param].sub_group].fragments.emplace_back(
          params[param].first, FragmentAddress{elements.numel(), places[param].begin});
    }
  }
}

size_t num_param_groups(const ZeroOptimizerStates& states) {
  if (states.zero_stage != 3) return states.groups.size();
  return states.groups.empty() ? 0 : states.groups.back().param_group + 1;
}

}  // namespace

OptimizerFiles OptimizerFiles::of_partitions(const std::filesystem::path& dir, const std::string& tag,
                                             const TagArchives& archives,
                                             const std::optional<std::vector<NamedShapes>>& shapes,
                                             int mp_rank) {
  const std::vector<OptimStatesFile> files = find_optim_states(dir, tag, mp_rank);
  require_each_rank(files, dir, tag, mp_rank);
  if (files.empty())
    raise<CheckpointError>(dir / tag, " has no optimizer files; load with load_optimizer_states = false");
  OptimizerFiles result;
  std::vector<ZeroOptimizerStates> ranks;
  for (const OptimStatesFile& entry : files) {
    result.files_.push_back(archives.open(entry.path));
    ranks.push_back(parse_optimizer_states(result.files_.back()->value()));
  }
  const std::vector<NamedShapes> placed = shapes ? *shapes : shapes_of_fragments(files, ranks);
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    require_groups<CheckpointError>(num_param_groups(ranks[rank]), placed.size(), files[rank].path,
                                    "the model file has");
  }
  if (ranks[0].zero_stage == 3) {
    place_shards_of_ranks(placed, files, ranks);
  } else {
    for (size_t index = 0; index < placed.size(); ++index)
      place_parameters(placed[index], index, files, ranks);
  }
  result.loss_scaler_ = ranks[0].loss_scaler;
  result.overflow_ = ranks[0].overflow;
  result.groups_.resize(placed.size());
  for (size_t rank = 0; rank < ranks.size(); ++rank) result.add_partition(*result.files_[rank], ranks[rank]);
  result.require_whole(placed, dir / tag);
  return result;
}

void OptimizerFiles::join(OptimizerFiles others) {
  if (others.groups_.size() != groups_.size()) {
    raise<CheckpointError>("the optimizer files of one stage have ", others.groups_.size(),
                           " parameter groups, those of another ", groups_.size(),
                           "; load with load_optimizer_states = false");
  }
  for (size_t index = 0; index < groups_.size(); ++index) {
    groups_[index].step = std::max(groups_[index].step, others.groups_[index].step);
    for (const auto& [state, type] : others.groups_[index].states) note_state(index, state, type);
    for (const auto& [name, values] : others.groups_[index].numbers)
      groups_[index].numbers[name].insert(values.begin(), values.end());
  }
  overflow_ = overflow_ || others.overflow_;
  closed_bytes_ += others.closed_bytes_;
  files_.insert(files_.end(), others.files_.begin(), others.files_.end());
  pieces_.merge(others.pieces_);
  state_files_.merge(others.state_files_);
}

void OptimizerFiles::require_whole(const std::vector<NamedShapes>& shapes,
                                   const std::filesystem::path& folder) const {
  for (const NamedShapes& group : shapes) {
    for (const auto& [name, sizes] : group) {
      if (numel(name, kMasterState) == numel_of(sizes)) continue;
      raise<CheckpointError>("the optimizer files of ", folder, " hold ", numel(name, kMasterState),
                             " elements of '", name, "', the model file says that it has ", numel_of(sizes));
    }
  }
}

void OptimizerFiles::add_partition(const DeferredArchive& file, const ZeroOptimizerStates& states) {
  for (size_t partition = 0; partition < states.groups.size(); ++partition) {
    const PartitionStates& group = states.groups[partition];
    const size_t index = states.zero_stage == 3 ? group.param_group : partition;
    groups_[index].step = std::max(groups_[index].step, group.step.value_or(0));
    groups_[index].options = group.options;
    groups_[index].numbers = group.numbers;
    for (const auto& [name, tensor] : group.tensors) {
      // A state that is not elementwise (some of DeepSpeed's optimizers have them) belongs to the group.
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
                                             const std::vector<NamedShapes>& params) {
  OptimizerFiles result;
  PlainOptimizerStates states = parse_plain_optimizer(optimizer);
  require_groups<MisfitError>(states.groups.size(), params.size(), file->path(), "the optimizer has");
  result.loss_scaler_ = states.loss_scaler;
  result.groups_.resize(states.groups.size());
  for (size_t index = 0; index < states.groups.size(); ++index)
    result.add_plain_group(index, *file, std::move(states.groups[index]), params[index]);
  result.files_.push_back(std::move(file));
  return result;
}

namespace {

/// Removes parameters without state if there are more than `num_trained`. DeepSpeed's fp32 optimizers list
/// untrained ones too.
void drop_untrained(PlainGroupStates& group, size_t num_trained) {
  if (group.params.size() <= num_trained) return;
  std::erase_if(group.params, [](const ParamOptimizerState& param) { return param.tensors.empty(); });
  if (group.params.empty()) group.params.resize(num_trained);  // an optimizer without states
}

}  // namespace

void OptimizerFiles::add_plain_group(size_t index, const DeferredArchive& file, PlainGroupStates group,
                                     const NamedShapes& params) {
  const bool is_flat = group.fp32_flat.defined() && group.params.size() == 1;
  if (!is_flat) drop_untrained(group, params.size());
  if (!is_flat && group.params.size() != params.size()) {
    raise<MisfitError>("parameter group ", index, " of ", file.path(), " has ", group.params.size(),
                       " parameters, the optimizer's has ", params.size());
  }
  groups_[index].options = group.options;
  const int64_t group_numel = numel_of(params);
  int64_t place = 0;  // offset in flat tensors
  for (size_t param = 0; param < params.size(); ++param) {
    const std::string& name = params[param].first;
    const int64_t numel = numel_of(params[param].second);
    const auto add = [&](const std::string& state, const at::Tensor& tensor, bool flat) {
      if (tensor.numel() != (flat ? group_numel : numel)) {
        raise<MisfitError>("'", state, "' of ", flat ? message("parameter group ", index) : "'" + name + "'",
                           " in ", file.path(), " has ", tensor.numel(), " elements, expected ",
                           flat ? group_numel : numel);
      }
      add_piece(name, state, file, tensor, flat ? place : 0, numel);
    };
    const ParamOptimizerState& own = group.params[is_flat ? 0 : param];
    groups_[index].step = std::max(groups_[index].step, own.step);
    for (const auto& [number, value] : own.numbers) groups_[index].numbers[number][name] = value;
    for (const auto& [state, tensor] : own.tensors) {
      if (tensor.dim() == 0 && numel != 1) continue;  // not elementwise
      if (is_of_one_rank(state)) continue;
      note_state(index, state, tensor.scalar_type());
      add(state, tensor, is_flat);
    }
    if (group.fp32_flat.defined()) add(kMasterState, group.fp32_flat, true);
    if (param < group.fp32.size()) add(kMasterState, group.fp32[param], false);
    place += numel;
  }
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
    raise<CheckpointError>(file.path(), ": '", state, "' of '", parameter, "' lies from element ", begin,
                           " to ", begin + numel, " of ", tensor.numel());
  }
  auto& pieces = pieces_[{parameter, state}];
  const int64_t done = pieces.empty() ? 0 : pieces.back().in_param.end;
  pieces.push_back({&file, tensor, begin, {done, done + numel}});
}

bool OptimizerFiles::holds(const std::string& parameter) const {
  const auto has = [&](const auto& states) {
    const auto first = states.lower_bound({parameter, ""});
    return first != states.end() && first->first.first == parameter;
  };
  return has(pieces_) || has(state_files_);
}

int64_t OptimizerFiles::numel(const std::string& parameter, const std::string& state) const {
  if (const auto file = state_files_.find({parameter, state}); file != state_files_.end())
    return file->second.numel;
  const auto found = pieces_.find({parameter, state});
  return found == pieces_.end() ? 0 : found->second.back().in_param.end;
}

at::ScalarType OptimizerFiles::master_dtype(const std::string& parameter) const {
  const auto found = pieces_.find({parameter, kMasterState});
  const bool is_double = found != pieces_.end() && !found->second.empty() &&
                         found->second.front().tensor.scalar_type() == at::kDouble;
  return is_double ? at::kDouble : at::kFloat;
}

void OptimizerFiles::read(const std::string& parameter, const std::string& state, const Interval& elements,
                          const at::Tensor& destination) const {
  if (elements.end > numel(parameter, state)) {
    raise<MisfitError>("the optimizer files hold ", numel(parameter, state), " elements of the state '",
                       state, "' of '", parameter, "', expected at least ", elements.end,
                       "; load with load_optimizer_states = false");
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
