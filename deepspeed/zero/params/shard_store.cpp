// Partitions a model at the start of stage 3. The order of events in the constructor, on all ranks:
//
// 1. All mistakes of the caller are checked (check_all) before anything changes.
// 2. Places for the shards are made, in memory or on a disk. The ranks tell each other whether that worked
//    (on_all_ranks), so a full disk on one rank is an error on all.
// 3. Parameters are partitioned one after the other (partition). If a parameter is partitioned already, only
//    its shard moves; if it is partitioned over other ranks, it is made whole first. Rank 0 sends the others,
//    small ones together, and each rank keeps its part (partition_whole). Only the parameters of one message
//    are in memory twice at a time.
#include "deepspeed/zero/params/shard_store.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/on_all_ranks.h"
#include "deepspeed/zero/params/memory_overlap.h"
#include "deepspeed/zero/params/trained_dtype.h"

namespace deepspeed::zero {
namespace {

// Returns whether a pool cuts its parameters as a store over these ranks does. If not, they are cut again.
bool has_shards_of(const GatherPool& pool, const ZeroGroups& ranks) {
  return pool.shard_group().global_ranks() == ranks.shard.global_ranks();
}

// Returns whether a pool covers all ranks that together hold a model. The ranks of each slice of the model
// then cut the pool's parameters again, all slices at the same time.
bool spans_slices(const GatherPool& pool, const ZeroGroups& ranks) {
  if (!ranks.model || pool.all_ranks().size() != ranks.data.size() * ranks.model.size()) return false;
  const std::vector<int>& all = pool.all_ranks().global_ranks();
  const auto has = [&](int rank) { return std::ranges::count(all, rank) > 0; };
  return std::ranges::all_of(ranks.data.global_ranks(), has) &&
         std::ranges::all_of(ranks.model.global_ranks(), has);
}

void check_adoptable(const NamedTensor& param, const ZeroGroups& ranks) {
  const auto storage = partitioned_storage_of(param.tensor);
  if (!storage) {
    raise<UsageError>("parameter '", param.name,
                      "' is being built under a zero::Init that is still active; end it before initialize()");
  }
  if (!storage->pool()->is_free()) {
    raise<UsageError>("parameter '", param.name,
                      "' is partitioned already, by another engine, which still has it; call its destroy(), "
                      "or drop it, first");
  }
  storage->pool()->check_unused(*storage);
  const GatherPool& built = *storage->pool();
  // Replicas hold equal values if they were built together.
  if (built.all_ranks().global_ranks() == ranks.data.global_ranks() || spans_slices(built, ranks)) return;
  if (has_shards_of(built, ranks) && !ranks.has_replicas()) return;
  raise<UsageError>("parameter '", param.name, "' was partitioned, by zero::Init or an earlier engine, over ",
                    built.shard_group().size(), " ranks, of which this one is ", built.shard_group().rank(),
                    ", expected ", ranks.shard.size(), " and ", ranks.shard.rank(),
                    "; make the parameters whole first, by zero::make_whole()");
}

void check_sharded_param(const NamedTensor& param, const ShardStore::Options& options,
                         const ZeroGroups& ranks, const at::Device& device) {
  const at::Tensor& tensor = param.tensor;
  if (tensor.is_meta()) {
    raise<UsageError>("parameter '", param.name,
                      "' is on the meta device and has no values; partition the model with "
                      "zero::Init({.module = model}) and give it values, with load_weights() for example");
  }
  check_trained_dtype(param, options.dtype);
  if (tensor.device() != device) {
    raise<UsageError>("parameter '", param.name, "' is on ", tensor.device(), ", the others on ", device,
                      "; move the model to one device first");
  }
  if (record_of(tensor)) check_adoptable(param, ranks);
}

void check_all(const std::vector<std::vector<NamedTensor>>& groups, const std::vector<NamedTensor>& frozen,
               const ShardStore::Options& options, const ZeroGroups& ranks) {
  if (groups.empty() && frozen.empty())
    raise<UsageError>(
        "there are no parameters; register the model's with register_module() and register_parameter()");
  const at::Device device = (groups.empty() ? frozen : groups.front()).at(0).tensor.device();
  std::unordered_set<const at::TensorImpl*> seen;
  MemoryOverlap overlap;
  const auto check = [&](const NamedTensor& param) {
    check_sharded_param(param, options, ranks, device);
    if (!seen.insert(param.tensor.unsafeGetTensorImpl()).second) {
      raise<UsageError>("parameter '", param.name, "' is in the parameter groups twice; list it once");
    }
    overlap.add(param);
  };
  for (const auto& params : groups) {
    for (const NamedTensor& param : params) check(param);
  }
  for (const NamedTensor& param : frozen) check(param);
}

void check_not_empty(const std::vector<std::vector<NamedTensor>>& groups) {
  for (const auto& params : groups) {
    if (params.empty()) raise<UsageError>("a parameter group is empty; give it a parameter or leave it out");
  }
}

/// Copies a shard's values to another one. scratch: memory for shards on a disk, reused by the next call.
void move_values(Shard& from, Shard& to, at::Tensor& scratch) {
  if (from.memory().defined()) return to.write(from.memory());
  const bool fits = scratch.defined() && scratch.numel() >= from.numel() && scratch.dtype() == from.dtype();
  if (!fits) scratch = at::empty({from.numel()}, from.dtype());
  const at::Tensor values = scratch.narrow(0, 0, from.numel());
  from.read(values);
  to.write(values);
}

/// Returns the index after the last parameter, from `first` on, that rank 0 sends together. A large parameter
/// is sent by itself.
size_t end_of_message(const std::vector<NamedTensor>& params, size_t first) {
  constexpr int64_t kMostTogether = 256 * 1024;  // elements
  int64_t numel = params[first].tensor.numel();
  size_t end = first + 1;
  for (; end < params.size(); ++end) {
    const at::Tensor& param = params[end].tensor;
    numel += param.numel();
    if (numel > kMostTogether || param.numel() == 0 || record_of(param)) break;
  }
  return end;
}

GatherPoolOptions pool_options(const ShardStore::Options& options, const ZeroGroups& ranks) {
  GatherPoolOptions pool = options.pool;
  pool.secondary_group = ranks.secondary;
  pool.all_ranks = ranks.data;
  if (pool.keys.gathers_by_nodes()) pool.nodes = {ranks.node, ranks.across_nodes};
  const ShardFileOptions& file = options.home.file;
  if (options.home.place != ParamHome::kDisk) return pool;
  const double numel = double(file.buffer_count) * double(file.buffer_numel) * ranks.shard.size();
  pool.read_ahead_numel = static_cast<int64_t>(std::min(numel, 1e18));
  return pool;
}

}  // namespace

ShardStore::ShardStore(std::vector<std::vector<NamedTensor>> groups, std::vector<NamedTensor> frozen,
                       const ZeroGroups& ranks, const Options& options)
    : ParamStore(options.dtype),
      ranks_(ranks),
      home_(options.home.place),
      pool_(std::make_shared<GatherPool>(ranks.shard, pool_options(options, ranks))),
      frozen_(std::move(frozen)) {
  check_not_empty(groups);
  check_all(groups, frozen_, options, ranks);
  const auto layout_of = [&](const std::vector<NamedTensor>& params) {
    return ShardLayout(numels_of(params), ranks.shard.size(), options.sub_group_numel);
  };
  const ShardLayout frozen_layout = layout_of(frozen_);
  std::vector<ShardHome::Group> homes;
  std::vector<at::ScalarType> dtypes;
  for (const auto& params : groups) dtypes.push_back(trained_dtype_of_group(params, options.dtype));
  ShardHome::Group frozen_home;
  comm::on_all_ranks(ranks.data, "making places for the parameters", [&] {
    ShardHome home(options.home);
    file_ = home.file();
    for (size_t index = 0; index < groups.size(); ++index) {
      layouts_.push_back(layout_of(groups[index]));
      homes.push_back(home.make_group(groups[index], layouts_.back(), dtypes[index]));
    }
    if (!frozen_.empty()) frozen_home = home.make_group(frozen_, frozen_layout, dtype());
  });
  for (size_t index = 0; index < groups.size(); ++index) {
    storages_.push_back(partition(groups[index], layouts_[index], homes[index].shards, dtypes[index]));
    FlatLayout flat_layout(numels_of(groups[index]), ranks.shard.size());
    this->groups().push_back(
        {std::move(groups[index]), std::move(flat_layout), dtypes[index], homes[index].flat});
  }
  if (!frozen_.empty()) frozen_storages_ = partition(frozen_, frozen_layout, frozen_home.shards, dtype());
}

ShardStore::~ShardStore() { pool_->abandon(); }

ShardStore::Storages ShardStore::partition(const std::vector<NamedTensor>& params, const ShardLayout& layout,
                                           const std::vector<std::shared_ptr<Shard>>& shards,
                                           at::ScalarType dtype) {
  const c10::NoGradGuard no_grad;
  Storages storages;
  at::Tensor scratch;
  while (storages.size() < params.size()) {
    const size_t index = storages.size();
    const at::Tensor& param = params[index].tensor;
    if (param.numel() == 0) {
      // Nothing to partition, but concatenation takes its result's dtype from empty tensors too.
      if (param.scalar_type() != dtype) param.set_data(param.detach().to(dtype));
      storages.push_back(nullptr);
      continue;
    }
    const auto built = partitioned_storage_of(param);
    // Cut over other ranks, by a zero::Init or by an engine without this mics_shard_size.
    const bool is_cut_anew = built && !has_shards_of(*built->pool(), ranks_);
    if (is_cut_anew) built->pool()->give_back({{param, built}});
    if (built && !is_cut_anew) {
      move_values(*built->shard(), *shards[index], scratch);
      storages.push_back(pool_->partition(param, params[index].name, shards[index]));
    } else {
      partition_whole(params, index, end_of_message(params, index), layout, shards, dtype, storages);
    }
  }
  return storages;
}

/// Partitions the parameters [first, end) and appends their storages. Rank 0 sends their values in one
/// message.
void ShardStore::partition_whole(const std::vector<NamedTensor>& params, size_t first, size_t end,
                                 const ShardLayout& layout, const std::vector<std::shared_ptr<Shard>>& shards,
                                 at::ScalarType dtype, Storages& storages) {
  std::vector<at::Tensor> parts;
  for (size_t index = first; index < end; ++index)
    parts.push_back(params[index].tensor.detach().to(dtype).contiguous().view({-1}));
  const at::Tensor values = parts.size() == 1 ? parts.front() : at::cat(parts);
  parts.clear();
  if (ranks_.data.size() > 1) ranks_.data.broadcast(values, 0);
  int64_t begin = 0;
  for (size_t index = first; index < end; ++index) {
    const at::Tensor& param = params[index].tensor;
    const Interval own = layout.elements(index, ranks_.shard.rank());
    shards[index]->write(values.narrow(0, begin + own.begin, own.numel()));
    // The parameter's elements must be in the shards' order before it is armed. No bytes are copied.
    if (!param.is_contiguous()) param.set_data(values.narrow(0, begin, param.numel()).view(param.sizes()));
    begin += param.numel();
    storages.push_back(pool_->partition(param, params[index].name, shards[index]));
  }
}

std::shared_ptr<Shard> ShardStore::shard(size_t group, size_t param) const {
  const auto& storage = storages_[group][param];
  return storage ? storage->shard() : nullptr;
}

int64_t ShardStore::bytes() const {
  int64_t bytes = 0;
  for (const Storages& group : storages_) {
    for (const auto& storage : group) {
      if (storage && storage->shard()->memory().defined()) bytes += storage->shard()->bytes();
    }
  }
  return bytes;
}

void ShardStore::wait_for_reads(size_t group, const Interval& interval) const {
  if (home_ != ParamHome::kHost) return;
  for (size_t param = 0; param < storages_[group].size(); ++param) {
    const auto& storage = storages_[group][param];
    if (storage && !intersect(layouts_[group].place(param), interval).empty())
      storage->shard()->wait_for_reads();
  }
}

std::optional<std::string> ShardStore::name_of_replaced() const {
  const auto find = [](const std::vector<NamedTensor>& params,
                       const Storages& storages) -> std::optional<std::string> {
    for (size_t index = 0; index < params.size(); ++index) {
      const auto& storage = storages[index];
      if (storage && record_of(params[index].tensor) != storage) return params[index].name;
    }
    return std::nullopt;
  };
  for (size_t group = 0; group < storages_.size(); ++group) {
    if (auto name = find(groups()[group].params, storages_[group])) return name;
  }
  return find(frozen_, frozen_storages_);
}

void ShardStore::finish_writes() {
  if (file_) file_->finish_writes();
}

std::vector<size_t> ShardStore::take_externally_written(size_t group) {
  pool_->compare_writes();
  std::vector<size_t> found;
  for (size_t index = 0; index < storages_[group].size(); ++index) {
    const auto& storage = storages_[group][index];
    if (storage && pool_->take_externally_written(*storage)) found.push_back(index);
  }
  return found;
}

void ShardStore::shards_changed() {
  for (const Storages& group : storages_) {
    for (const auto& storage : group) {
      if (storage) pool_->shard_changed(*storage);
    }
  }
}

}  // namespace deepspeed::zero
