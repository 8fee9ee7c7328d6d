// Finds the fp32 weights in the files of a checkpoint of any stage, without reading them.
//
// The constructor opens the model files and all ranks' optimizer files; for a pipeline also the layers'
// files. For each weight it makes a list of parts (file, tensor, elements). At stage 0 these are in the
// module (add_module), at stages 1 and 2 in flat partitions, which may cut a parameter anywhere (add_group),
// and at stage 3 in shards (add_shards). Buffers come from the module, and frozen parameters from their
// fragments. Aliases share the parts of the weight they name. All counts are compared before any data is
// read. stream() then reads the parts of one weight piece by piece. Weights follow each other file by file,
// so only one file reads ahead at a time.
#include "deepspeed/checkpoint/sources/fp32_source.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include <ATen/ops/empty.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/checkpoint/sources/shard_places.h"
#include "deepspeed/checkpoint/tag/layout.h"

namespace deepspeed::checkpoint {
namespace {

constexpr int64_t kPieceNumel = 1 << 20;
using std::filesystem::path;

/// Adds the file's name to an error in its content.
template <class Function>
auto parse_file(const DeferredArchive& file, Function parse) {
  try {
    return parse(file.value());
  } catch (const CheckpointError& error) {
    raise<CheckpointError>(file.path(), " is not a file of this kind of checkpoint: ", error.what());
  }
}

int64_t checked_numel(const std::string& name, const std::vector<int64_t>& sizes) {
  int64_t numel = 1;
  for (const int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(numel, size, &numel))
      raise<CheckpointError>("'", name, "' has an impossible shape");
  }
  return numel;
}

}  // namespace

Fp32Source::Fp32Source(const path& dir, const std::string& tag, const Options& options,
                       std::shared_ptr<const TagArchives> archives)
    : archives_(archives ? std::move(archives) : std::make_shared<const TagArchives>(dir / tag)) {
  for (const ModelStatesFile& file : require_model_states(dir, tag, options.mp_rank)) {
    Stage& stage = stages_.emplace_back();
    stage.mp_rank = file.mp_rank;
    stage.model = archives_->open(file.path);
    stage.states = parse_file(*stage.model, parse_module_states);
    open_partitions(dir, tag, stage);
  }
  open_module(dir, tag);
  const Stage& first = stages_.front();
  const bool has_shapes = first.states.param_shapes.has_value();
  // A pipeline at stage 0, which may have optimizer files in bf16.
  const bool is_plain = !layer_files_.empty() && (first.ranks.empty() || !has_shapes);
  if (!has_shapes || is_plain) {
    add_module();
    if (!is_plain) return;
    for (const Stage& stage : stages_) {
      for (const auto& [alias, name] : stage.states.shared_params) add_alias(alias, name);
    }
    return;
  }
  for (const Stage& stage : stages_) {
    if (!stage.ranks.empty()) continue;
    raise<CheckpointError>("the file ", optim_states_path(dir, tag, 0, stage.mp_rank),
                           " (or that of bf16) is missing");
  }
  for (const Stage& stage : stages_) add_buffers(stage);
  for (Stage& stage : stages_) add_stage(dir, tag, options.exclude_frozen_parameters, stage);
}

/// Lists the module's tensors. In a pipeline they come from one file per layer, whose names lack the layer's
/// prefix. Buffers of tied layers get other names than in the model files, so add_buffers() does not find
/// them.
void Fp32Source::open_module(const path& dir, const std::string& tag) {
  for (const Stage& stage : stages_) {
    for (const auto& [name, tensor] : stage.states.module)
      module_.push_back({name, tensor, stage.model.get()});
  }
  for (const LayerStatesFile& file : find_layer_states(dir, tag)) {
    layer_files_.push_back(archives_->open(file.path));
    const DeferredArchive& archive = *layer_files_.back();
    for (const auto& [name, tensor] : parse_file(archive, parse_tensors))
      module_.push_back({message(file.layer, ".", name), tensor, &archive});
  }
}

void Fp32Source::add_buffers(const Stage& stage) {
  for (const std::string& name : stage.states.buffer_names) {
    const auto buffer =
        std::ranges::find(module_, name, &ModuleEntry::name);  // absent if it is not persistent
    if (buffer != module_.end()) add_of_file(name, buffer->tensor, *buffer->archive);
  }
}

void Fp32Source::add_stage(const path& dir, const std::string& tag, bool exclude_frozen_parameters,
                           Stage& stage) {
  const auto& shapes = *stage.states.param_shapes;
  if (stage.ranks[0].zero_stage == 3) {
    require_same_shapes(dir, tag, stage);
    if (!exclude_frozen_parameters) add_sharded_frozen(dir, tag, stage);
    add_shards(stage);
  } else {
    if (!exclude_frozen_parameters) add_frozen(stage);
    if (shapes.size() != stage.ranks[0].groups.size()) {
      raise<CheckpointError>("the model file has ", shapes.size(),
                             " parameter groups, the optimizer files have ", stage.ranks[0].groups.size());
    }
    for (size_t group = 0; group < shapes.size(); ++group)
      require_own_parts(shapes[group], group, stage.ranks,
                        [&](size_t rank) { return stage.files[rank]->path(); });
    for (size_t group = 0; group < stage.ranks[0].groups.size(); ++group) add_group(stage, group);
  }
  for (const auto& [alias, name] : stage.states.shared_params) add_alias(alias, name);
}

/// Checks that the files of all ranks agree on the shapes. There is no engine to compare them with.
void Fp32Source::require_same_shapes(const path& dir, const std::string& tag, const Stage& stage) const {
  const std::vector<path> files = find_sharded_model_states(dir, tag, stage.mp_rank);
  for (size_t rank = 1; rank < files.size(); ++rank) {
    const ModuleStates states = parse_file(*archives_->open(files[rank]), parse_module_states);
    const bool agree = states.param_shapes == stage.states.param_shapes &&
                       states.frozen_param_shapes == stage.states.frozen_param_shapes;
    if (agree) continue;
    raise<CheckpointError>(files[rank], " has other parameter names or shapes than ",
                           files.front().filename(), ": one of them is altered, or they are from two saves");
  }
}

void Fp32Source::open_partitions(const path& dir, const std::string& tag, Stage& stage) const {
  const std::vector<OptimStatesFile> files = find_optim_states(dir, tag, stage.mp_rank);
  require_each_rank(files, dir, tag, stage.mp_rank);
  std::vector<ZeroOptimizerStates>& ranks = stage.ranks;
  int64_t world_size = files.empty() ? 0 : 1;
  for (size_t rank = 0; rank < files.size(); ++rank) {
    stage.files.push_back(archives_->open(files[rank].path));
    ranks.push_back(parse_file(*stage.files.back(), parse_partitions));
    if (ranks[rank].groups.size() != ranks[0].groups.size()) {
      raise<CheckpointError>(files[rank].path, " has ", ranks[rank].groups.size(), " groups, expected ",
                             ranks[0].groups.size());
    }
  }
  for (size_t group = 0; !ranks.empty() && group < ranks[0].groups.size(); ++group)
    world_size = std::max(world_size, ranks[0].groups[group].partition_count);
  if (int64_t(ranks.size()) < world_size) {
    raise<CheckpointError>("the file ",
                           optim_states_path(dir, tag, int(ranks.size()), stage.mp_rank, files[0].bf16),
                           " is missing: the checkpoint is of ", world_size, " ranks");
  }
  if (int64_t(ranks.size()) > world_size) {
    raise<CheckpointError>("there are optimizer files of ", ranks.size(), " ranks, expected ", world_size);
  }
}

void Fp32Source::add(const std::string& name, const std::vector<int64_t>& sizes, Parts parts) {
  if (!positions_.emplace(name, weights_.size()).second) return;
  const at::Tensor weight = at::empty(sizes, at::TensorOptions().dtype(at::kFloat).device(at::kMeta));
  parts_.emplace(weight.storage().unsafeGetStorageImpl(), std::move(parts));
  weights_.emplace_back(name, weight);
}

void Fp32Source::add_of_file(const std::string& name, const at::Tensor& tensor,
                             const DeferredArchive& archive) {
  add(name, tensor.sizes().vec(), {{&archive, tensor, {0, tensor.numel()}}});
}

void Fp32Source::add_alias(const std::string& name, const std::string& of) {
  const auto found = positions_.find(of);
  if (found == positions_.end() || !positions_.emplace(name, weights_.size()).second) return;
  weights_.emplace_back(name, weights_[found->second].tensor);
}

void Fp32Source::add_module() {
  std::unordered_map<const void*, std::string> first_names;  // aliases stay aliases
  for (const auto& [name, tensor, archive] : module_) {
    const auto [first, is_new] = first_names.try_emplace(tensor.unsafeGetTensorImpl(), name);
    if (is_new) {
      add_of_file(name, tensor, *archive);
    } else {
      add_alias(name, first->second);
    }
  }
}

void Fp32Source::add_frozen(const Stage& stage) {
  if (!stage.states.frozen_param_shapes) return add_frozen_of_module(stage);
  const auto fragments = by_name(stage.states.frozen_param_fragments.value_or(NamedTensors()));
  for (const auto& [name, sizes] : *stage.states.frozen_param_shapes) {
    const auto fragment = fragments.find(name);
    if (fragment == fragments.end()) {
      raise<CheckpointError>("the frozen parameter '", name, "' has a shape, but no data");
    }
    if (fragment->second.sizes() != at::IntArrayRef(sizes)) {
      raise<CheckpointError>("'", name, "' has the shape ", fragment->second.sizes(), ", expected ",
                             at::IntArrayRef(sizes));
    }
    add_of_file(name, fragment->second, *stage.model);
  }
}

/// Adds the module's frozen parameters: all that are not trained. At stage 1, DeepSpeed does not list them.
void Fp32Source::add_frozen_of_module(const Stage& stage) {
  std::unordered_set<std::string> trained;
  for (const NamedShapes& group : *stage.states.param_shapes) {
    for (const auto& [name, sizes] : group) trained.insert(name);
  }
  for (const auto& [alias, name] : stage.states.shared_params) trained.insert(alias);
  for (const auto& [name, tensor] : stage.states.module) {
    if (!trained.contains(name)) add_of_file(name, tensor, *stage.model);
  }
}

/// Adds frozen parameters of stage 3, whose shards are in the ranks' model files.
void Fp32Source::add_sharded_frozen(const path& dir, const std::string& tag, Stage& stage) {
  if (!stage.states.frozen_param_shapes) return add_frozen_of_module(stage);
  std::vector<std::unordered_map<std::string, at::Tensor>> fragments;
  for (const path& file : find_sharded_model_states(dir, tag, stage.mp_rank)) {
    stage.model_files.push_back(archives_->open(file));
    const ModuleStates states = parse_file(*stage.model_files.back(), parse_module_states);
    fragments.push_back(by_name(states.frozen_param_fragments.value_or(NamedTensors())));
  }
  const auto num_ranks = int64_t(fragments.size());
  for (const auto& [name, sizes] : *stage.states.frozen_param_shapes) {
    const int64_t numel = checked_numel(name, sizes);
    Parts parts;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      const Interval elements = shard_elements(numel, num_ranks, rank);
      if (elements.empty()) continue;
      const auto fragment = fragments[rank].find(name);
      if (fragment == fragments[rank].end() || fragment->second.numel() < elements.numel()) {
        raise<CheckpointError>(stage.model_files[rank]->path(), " lacks data of the frozen '", name, "'");
      }
      parts.push_back({stage.model_files[rank].get(), fragment->second, {0, elements.numel()}});
    }
    add(name, sizes, std::move(parts));
  }
  add_frozen_of_module(stage);  // those that are not partitioned
}

void Fp32Source::add_shards(const Stage& stage) {
  const auto num_ranks = int64_t(stage.ranks.size());
  std::vector<int64_t> numels;
  for (const NamedShapes& group : *stage.states.param_shapes) {
    for (const auto& [name, sizes] : group) numels.push_back(checked_numel(name, sizes));
  }
  std::vector<std::vector<ShardPlace>> places;  // by rank
  for (size_t rank = 0; rank < stage.ranks.size(); ++rank) {
    std::vector<int64_t> sub_groups;
    for (const PartitionStates& group : stage.ranks[rank].groups) sub_groups.push_back(group.fp32.numel());
    places.push_back(place_shards(numels, sub_groups, num_ranks, stage.files[rank]->path()));
  }
  size_t param = 0;
  for (const NamedShapes& group : *stage.states.param_shapes) {
    for (const auto& [name, sizes] : group) {
      Parts parts;
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        const Interval elements = shard_elements(numels[param], num_ranks, rank);
        const ShardPlace& place = places[rank][param];
        if (elements.empty()) continue;
        parts.push_back({stage.files[rank].get(),
                         stage.ranks[rank].groups[place.sub_group].fp32,
                         {place.begin, place.begin + elements.numel()}});
      }
      add(name, sizes, std::move(parts));
      ++param;
    }
  }
}

Fp32Source::Parts Fp32Source::parts_of_group(const Stage& stage, size_t group, const Interval& elements) {
  Parts parts;
  int64_t begin = 0;
  for (size_t rank = 0; rank < stage.ranks.size(); ++rank) {
    const at::Tensor& partition = stage.ranks[rank].groups[group].fp32;
    const Interval common = intersect(elements, {begin, begin + partition.numel()});
    if (!common.empty())
      parts.push_back({stage.files[rank].get(), partition, {common.begin - begin, common.end - begin}});
    begin += partition.numel();
  }
  return parts;
}

void Fp32Source::add_group(const Stage& stage, size_t group) {
  int64_t flat = 0;
  for (const ZeroOptimizerStates& rank : stage.ranks) flat += rank.groups[group].fp32.numel();
  int64_t offset = 0;
  for (const auto& [name, sizes] : (*stage.states.param_shapes)[group]) {
    const int64_t numel = checked_numel(name, sizes);
    if (numel > flat - offset) {
      raise<CheckpointError>("group ", group, " has ", flat, " elements, too few for '", name,
                             "', which starts at ", offset, " and has ", numel);
    }
    add(name, sizes, parts_of_group(stage, group, {offset, offset + numel}));
    offset += numel;
  }
  // Older files keep the padding at the end of the last partitions, at most one alignment unit.
  const int64_t alignment = 2 * int64_t(stage.ranks.size());
  const auto aligned = [&](int64_t numel) { return (numel + alignment - 1) / alignment; };
  if (aligned(offset) != aligned(flat)) {
    raise<CheckpointError>("the parameters of group ", group, " have ", offset,
                           " elements, the optimizer files hold ", flat);
  }
}

const Fp32Source::Parts& Fp32Source::parts_of(const at::Tensor& weight) const {
  const auto parts = parts_.find(weight.storage().unsafeGetStorageImpl());
  if (parts == parts_.end()) raise<UsageError>("a tensor that is not of this checkpoint");
  return parts->second;
}

/// Stops the read-ahead of the previous file: weights follow each other file by file.
void Fp32Source::begin_reading(const DeferredArchive& archive) const {
  if (last_read_ != nullptr && last_read_ != &archive) last_read_->release();
  last_read_ = &archive;
}

at::Tensor Fp32Source::load(const at::Tensor& weight) const {
  const at::Tensor data = at::empty(weight.sizes(), at::TensorOptions().dtype(at::kFloat));
  auto* end = static_cast<char*>(data.mutable_data_ptr());
  stream(weight, [&](const void* piece, size_t size) {
    std::memcpy(end, piece, size);
    end += size;
  });
  return data;
}

void Fp32Source::stream(const at::Tensor& weight, const PieceSink& sink) const {
  at::Tensor memory;
  for (const Part& part : parts_of(weight)) {
    begin_reading(*part.archive);
    if (!part.tensor.is_contiguous()) {
      const at::Tensor whole = part.archive->load(part.tensor).to(at::kFloat).contiguous();
      sink(whole.const_data_ptr(), whole.nbytes());
      continue;
    }
    for (int64_t begin = part.elements.begin; begin < part.elements.end; begin += kPieceNumel) {
      const Interval elements{begin, std::min(begin + kPieceNumel, part.elements.end)};
      if (!memory.defined()) {
        memory = at::empty({std::min(kPieceNumel, weight.numel())}, at::TensorOptions().dtype(at::kFloat));
      }
      const at::Tensor piece = memory.narrow(0, 0, elements.numel());
      part.archive->read(part.tensor, elements, piece);
      sink(piece.const_data_ptr(), piece.nbytes());
    }
  }
}

}  // namespace deepspeed::checkpoint
