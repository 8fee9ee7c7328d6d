#include "deepspeed/zero/shard_store.h"

#include <iterator>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"

namespace deepspeed::zero {
namespace {

constexpr const char* kShardStoreWhere = "zero.shard_store";

// Bytes of memory, by their begin: the end and the parameter.
using Occupied = std::map<uintptr_t, std::pair<uintptr_t, const std::string*>>;

void check_memory(const NamedTensor& param, Occupied& occupied) {
  const auto begin = reinterpret_cast<uintptr_t>(param.tensor.const_data_ptr());
  const auto end = begin + param.tensor.nbytes();
  const auto next = occupied.lower_bound(begin);
  const std::string* other = nullptr;
  if (next != occupied.end() && next->first < end) other = next->second.second;
  if (next != occupied.begin() && std::prev(next)->second.first > begin)
    other = std::prev(next)->second.second;
  if (other != nullptr) {
    raise<UsageError>(kShardStoreWhere, "parameters '", *other, "' and '", param.name,
                      "' share memory, which partitioning would untie; register one tensor in both places");
  }
  occupied[begin] = {end, &param.name};
}

void check_sharded_param(const NamedTensor& param, const ShardStore::Options& options,
                         const at::Device& device) {
  const at::Tensor& tensor = param.tensor;
  if (tensor.layout() != at::kStrided || !tensor.is_floating_point()) {
    raise<UsageError>(kShardStoreWhere, "parameter '", param.name, "' is ", tensor.toString(),
                      ", expected a dense float tensor");
  }
  if (tensor.device() != device) {
    raise<UsageError>(kShardStoreWhere, "parameter '", param.name, "' is on ", tensor.device(),
                      ", the others on ", device, "; move the model to one device first");
  }
  if (options.dtype == at::kFloat && tensor.scalar_type() != at::kFloat) {
    raise<UsageError>(kShardStoreWhere, "parameter '", param.name, "' is ", tensor.scalar_type(),
                      ", expected Float: convert the model, or enable fp16 or bf16 in the config");
  }
  if (record_of(tensor)) {
    raise<UsageError>(kShardStoreWhere, "parameter '", param.name,
                      "' is partitioned already, by another engine");
  }
}

void check_all(const std::vector<std::vector<NamedTensor>>& groups, const std::vector<NamedTensor>& frozen,
               const ShardStore::Options& options) {
  if (groups.empty() && frozen.empty()) raise<UsageError>(kShardStoreWhere, "there are no parameters");
  const at::Device device = (groups.empty() ? frozen : groups.front()).at(0).tensor.device();
  std::unordered_set<const at::TensorImpl*> seen;
  Occupied occupied;
  const auto check = [&](const NamedTensor& param) {
    check_sharded_param(param, options, device);
    if (!seen.insert(param.tensor.unsafeGetTensorImpl()).second) {
      raise<UsageError>(kShardStoreWhere, "parameter '", param.name,
                        "' stands in the parameter groups twice");
    }
    if (param.tensor.numel() > 0) check_memory(param, occupied);
  };
  for (const auto& params : groups) {
    for (const NamedTensor& param : params) check(param);
  }
  for (const NamedTensor& param : frozen) check(param);
}

void check_not_empty(const std::vector<std::vector<NamedTensor>>& groups) {
  for (const auto& params : groups) {
    if (params.empty()) raise<UsageError>(kShardStoreWhere, "a parameter group is empty");
  }
}

std::vector<int64_t> numels_of(const std::vector<NamedTensor>& params) {
  std::vector<int64_t> numels;
  for (const NamedTensor& param : params) numels.push_back(param.tensor.numel());
  return numels;
}

at::Tensor zeros_for(const ShardLayout& layout, const std::vector<NamedTensor>& params,
                     at::ScalarType dtype) {
  return at::zeros({layout.flat_numel()},
                   at::TensorOptions().dtype(dtype).device(params.front().tensor.device()));
}

}  // namespace

ShardStore::ShardStore(std::vector<std::vector<NamedTensor>> groups, std::vector<NamedTensor> frozen,
                       const comm::ProcessGroup& group, const Options& options)
    : ParamStore(options.dtype),
      pool_(std::make_shared<GatherPool>(group, options.pool)),
      frozen_(std::move(frozen)) {
  check_not_empty(groups);
  check_all(groups, frozen_, options);
  for (auto& params : groups) {
    const std::vector<int64_t> numels = numels_of(params);
    layouts_.emplace_back(numels, group.size(), options.sub_group_numel);
    const at::Tensor flat = zeros_for(layouts_.back(), params, dtype());
    storages_.push_back(partition(params, layouts_.back(), flat));
    this->groups().push_back({std::move(params), FlatLayout(numels, group.size()), flat});
  }
  if (frozen_.empty()) return;
  const ShardLayout layout(numels_of(frozen_), group.size(), options.sub_group_numel);
  frozen_storages_ = partition(frozen_, layout, zeros_for(layout, frozen_, dtype()));
}

ShardStore::Storages ShardStore::partition(const std::vector<NamedTensor>& params, const ShardLayout& layout,
                                           const at::Tensor& flat) {
  const c10::NoGradGuard no_grad;
  const comm::ProcessGroup& group = pool_->group();
  Storages storages;
  for (size_t index = 0; index < params.size(); ++index) {
    const at::Tensor& param = params[index].tensor;
    if (param.numel() == 0) {
      storages.push_back(nullptr);
      continue;
    }
    at::Tensor whole = param.detach().to(dtype()).contiguous();
    if (group.size() > 1) group.broadcast(whole, 0);
    const Interval place = layout.place(index);
    const Interval own = layout.elements(index, group.rank());
    const at::Tensor shard = flat.narrow(0, place.begin, place.numel());
    shard.narrow(0, 0, own.numel()).copy_(whole.view({-1}).narrow(0, own.begin, own.numel()));
    // In the dtype and the order of the shards, before it is armed; no bytes are copied.
    if (param.scalar_type() != dtype() || !param.is_contiguous()) param.set_data(whole);
    whole.reset();
    storages.push_back(pool_->partition(param, params[index].name, shard));
  }
  return storages;
}

std::vector<size_t> ShardStore::take_set(size_t group) {
  std::vector<size_t> found;
  for (size_t index = 0; index < storages_[group].size(); ++index) {
    const auto& storage = storages_[group][index];
    if (storage && pool_->take_was_set(*storage)) found.push_back(index);
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
