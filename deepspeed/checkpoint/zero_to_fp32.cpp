#include "deepspeed/checkpoint/zero_to_fp32.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <ATen/ops/cat.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/layout.h"
#include "deepspeed/checkpoint/model_states.h"
#include "deepspeed/checkpoint/optimizer_states.h"
#include "deepspeed/checkpoint/torch_archive.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kZeroToFp32Where = "checkpoint.zero_to_fp32";
using std::filesystem::path;

std::string resolve_tag(const path& dir, const std::optional<std::string>& tag) {
  if (tag) return *tag;
  if (const auto latest = read_latest(dir)) return *latest;
  raise<CheckpointError>(kZeroToFp32Where, "there is no file ", latest_path(dir), "; name the tag to read");
}

/// Adds the file's name to what is wrong in it.
template <class Function>
auto parse_file(const path& file, Function parse) {
  const Value value = read_torch_archive(file);
  try {
    return parse(value);
  } catch (const CheckpointError& error) {
    raise<CheckpointError>(kZeroToFp32Where, file,
                           " is not a file of this kind of checkpoint: ", error.what());
  }
}

ModuleStates read_module_states(const path& dir, const std::string& tag) {
  const std::vector<path> files = find_model_states(dir, tag);
  const path expected = model_states_path(dir, tag);
  if (files.empty()) raise<CheckpointError>(kZeroToFp32Where, "the file ", expected, " is missing");
  if (files.size() > 1 || files[0].filename() != expected.filename()) {
    raise<NotSupportedError>(
        kZeroToFp32Where, "checkpoints of stage 3 and of model parallel training are not supported yet, got ",
        files.back());
  }
  return parse_file(files[0], parse_module_states);
}

/// Partitions of all data-parallel ranks, in their order; none at stage 0.
std::vector<ZeroOptimizerStates> read_partitions(const path& dir, const std::string& tag) {
  const std::vector<OptimStatesFile> files = find_optim_states(dir, tag);
  std::vector<ZeroOptimizerStates> ranks;
  for (size_t rank = 0; rank < files.size(); ++rank) {
    if (files[rank].dp_rank != int(rank) || files[rank].mp_rank != 0) {
      raise<CheckpointError>(kZeroToFp32Where, "the file ",
                             optim_states_path(dir, tag, int(rank), 0, files[0].bf16), " is missing");
    }
    ranks.push_back(parse_file(files[rank].path, parse_partitions));
    if (ranks[rank].groups.size() != ranks[0].groups.size()) {
      raise<CheckpointError>(kZeroToFp32Where, files[rank].path, " has ", ranks[rank].groups.size(),
                             " groups, expected ", ranks[0].groups.size());
    }
  }
  if (ranks.empty()) return ranks;
  int64_t world_size = 1;
  for (const PartitionStates& group : ranks[0].groups)
    world_size = std::max(world_size, group.partition_count);
  if (int64_t(ranks.size()) < world_size) {
    raise<CheckpointError>(kZeroToFp32Where, "the file ",
                           optim_states_path(dir, tag, int(ranks.size()), 0, files[0].bf16),
                           " is missing: the checkpoint is of ", world_size, " ranks");
  }
  if (int64_t(ranks.size()) > world_size) {
    raise<CheckpointError>(kZeroToFp32Where, "there are optimizer files of ", ranks.size(),
                           " ranks, expected ", world_size);
  }
  return ranks;
}

class Fp32Weights {
 public:
  Fp32Weights(const ModuleStates& states, bool exclude_frozen)
      : states_(states), exclude_frozen_(exclude_frozen) {
    for (const auto& [name, tensor] : states.module) module_.emplace(name, tensor);
  }

  NamedTensors of_module() {
    std::unordered_map<const void*, at::Tensor> casts;  // aliases stay aliases
    for (const auto& [name, tensor] : states_.module) {
      auto [cast, is_new] = casts.try_emplace(tensor.unsafeGetTensorImpl());
      if (is_new) cast->second = tensor.to(at::kFloat);
      add(name, cast->second);
    }
    return std::move(weights_);
  }

  NamedTensors of_partitions(const std::vector<ZeroOptimizerStates>& ranks) {
    for (const std::string& name : states_.buffer_names) {
      const auto buffer = module_.find(name);  // absent: a buffer that is not persistent
      if (buffer != module_.end()) add(name, buffer->second.to(at::kFloat));
    }
    if (!exclude_frozen_) add_frozen();
    if (states_.param_shapes->size() != ranks[0].groups.size()) {
      raise<CheckpointError>(kZeroToFp32Where, "the model file has ", states_.param_shapes->size(),
                             " parameter groups, the optimizer files have ", ranks[0].groups.size());
    }
    for (size_t group = 0; group < ranks[0].groups.size(); ++group) add_group(ranks, group);
    for (const auto& [alias, name] : states_.shared_params) {
      const auto found = positions_.find(name);
      if (found != positions_.end()) add(alias, weights_[found->second].second);
    }
    return std::move(weights_);
  }

 private:
  void add(const std::string& name, at::Tensor tensor) {
    if (!positions_.emplace(name, weights_.size()).second) return;
    weights_.emplace_back(name, std::move(tensor));
  }

  void add_frozen() {
    if (!states_.frozen_param_shapes) return add_frozen_of_module();
    std::unordered_map<std::string, at::Tensor> fragments;
    if (states_.frozen_param_fragments) {
      fragments.insert(states_.frozen_param_fragments->begin(), states_.frozen_param_fragments->end());
    }
    for (const auto& [name, shape] : *states_.frozen_param_shapes) {
      const auto fragment = fragments.find(name);
      if (fragment == fragments.end()) {
        raise<CheckpointError>(kZeroToFp32Where, "the frozen parameter '", name,
                               "' has a shape, but no data");
      }
      check_shape(name, fragment->second, shape);
      add(name, fragment->second.to(at::kFloat));
    }
  }

  /// DeepSpeed leaves out the list of frozen parameters at stage 1; the module holds them all the same.
  void add_frozen_of_module() {
    std::unordered_set<std::string> trained;
    for (const NamedShapes& group : *states_.param_shapes) {
      for (const auto& [name, shape] : group) trained.insert(name);
    }
    for (const auto& [alias, name] : states_.shared_params) trained.insert(alias);
    for (const auto& [name, tensor] : states_.module) {
      if (!trained.contains(name)) add(name, tensor.to(at::kFloat));
    }
  }

  static void check_shape(const std::string& name, const at::Tensor& tensor,
                          const std::vector<int64_t>& shape) {
    if (tensor.sizes() != at::IntArrayRef(shape)) {
      raise<CheckpointError>(kZeroToFp32Where, "'", name, "' has the shape ", tensor.sizes(), ", expected ",
                             at::IntArrayRef(shape));
    }
  }

  void add_group(const std::vector<ZeroOptimizerStates>& ranks, size_t group) {
    std::vector<at::Tensor> partitions;
    for (const ZeroOptimizerStates& rank : ranks) partitions.push_back(rank.groups[group].fp32);
    const at::Tensor flat = at::cat(partitions);
    int64_t offset = 0;
    for (const auto& [name, shape] : (*states_.param_shapes)[group]) {
      int64_t numel = 1;
      for (const int64_t size : shape) {
        if (size < 0 || __builtin_mul_overflow(numel, size, &numel)) {
          raise<CheckpointError>(kZeroToFp32Where, "'", name, "' has an impossible shape");
        }
      }
      if (numel > flat.numel() - offset) {
        raise<CheckpointError>(kZeroToFp32Where, "group ", group, " has ", flat.numel(),
                               " elements, too few for '", name, "', which starts at ", offset, " and has ",
                               numel);
      }
      add(name, flat.narrow(0, offset, numel).view(shape));
      offset += numel;
    }
    // Older files keep the padding at the end of the last partitions, at most one alignment unit of it.
    const int64_t alignment = 2 * int64_t(ranks.size());
    const auto aligned = [&](int64_t numel) { return (numel + alignment - 1) / alignment; };
    if (aligned(offset) != aligned(flat.numel())) {
      raise<CheckpointError>(kZeroToFp32Where, "the parameters of group ", group, " have ", offset,
                             " elements, the optimizer files hold ", flat.numel());
    }
  }

  const ModuleStates& states_;
  bool exclude_frozen_;
  std::unordered_map<std::string, at::Tensor> module_;
  NamedTensors weights_;
  std::unordered_map<std::string, size_t> positions_;
};

}  // namespace

NamedTensors get_fp32_state_dict_from_zero_checkpoint(const path& dir, const std::optional<std::string>& tag,
                                                      bool exclude_frozen_parameters) {
  const std::string resolved = resolve_tag(dir, tag);
  const ModuleStates states = read_module_states(dir, resolved);
  const std::vector<ZeroOptimizerStates> ranks = read_partitions(dir, resolved);
  Fp32Weights weights(states, exclude_frozen_parameters);
  if (!states.param_shapes) return weights.of_module();
  if (ranks.empty()) {
    raise<CheckpointError>(kZeroToFp32Where, "the file ", optim_states_path(dir, resolved, 0),
                           " (or that of bf16) is missing");
  }
  return weights.of_partitions(ranks);
}

}  // namespace deepspeed::checkpoint
