#include "deepspeed/zero/make_whole.h"

#include <map>
#include <memory>
#include <unordered_set>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/on_all_ranks.h"
#include "deepspeed/device/accelerator/memory.h"
#include "deepspeed/zero/access/gather_pool.h"
#include "deepspeed/zero/gathered_parameters.h"

namespace deepspeed::zero {
namespace {

using Storages = std::vector<std::pair<at::Tensor, std::shared_ptr<PartitionedStorage>>>;

struct PoolParams {
  std::shared_ptr<GatherPool> pool;
  Storages params;
};

void check_can_be_whole(const PartitionedStorage& storage) {
  if (!storage.pool()->is_free()) {
    raise<UsageError>("parameter '", storage.name(),
                      "' has an engine; call its destroy(), which makes its parameters whole, or read them "
                      "inside zero::GatheredParameters");
  }
  storage.pool()->check_unused(storage);
}

/// Lists the partitioned parameters in order, each once. Neighbours of one pool share an entry.
std::vector<PoolParams> partitioned_among(const std::vector<at::Tensor>& params) {
  std::vector<PoolParams> found;
  std::unordered_set<const PartitionedStorage*> seen;
  for (const at::Tensor& param : params) {
    const auto record = record_of(param);
    if (!record) continue;
    auto storage = std::dynamic_pointer_cast<PartitionedStorage>(record);
    if (!storage) raise<UsageError>("a zero::Init is still building the model; end it first");
    check_can_be_whole(*storage);
    if (!seen.insert(storage.get()).second) continue;
    if (found.empty() || found.back().pool != storage->pool()) found.push_back({storage->pool(), {}});
    found.back().params.emplace_back(param, std::move(storage));
  }
  return found;
}

void check_memory(const Storages& params) {
  int64_t needed = 0;
  for (const auto& [param, storage] : params)
    needed += param.is_cpu() ? static_cast<int64_t>(param.nbytes()) : 0;
  const int64_t available = device::available_host_bytes();
  if (needed <= available) return;
  raise<UsageError>(
      "the whole model takes ", needed, " bytes on every rank, and there are ", available,
      "; leave it partitioned: destroy({.keep_partitioned = true}), which can still evaluate, and "
      "initialize() at stage 3 goes on with it");
}

}  // namespace

bool is_abandoned(const at::Tensor& tensor) {
  const auto storage = partitioned_storage_of(tensor);
  return storage && storage->pool()->is_abandoned();
}

void check_unused(const std::vector<at::Tensor>& params) {
  for (const at::Tensor& param : params) {
    if (const auto storage = partitioned_storage_of(param)) storage->pool()->check_unused(*storage);
  }
}

void make_whole(const std::vector<at::Tensor>& params) {
  for (const PoolParams& entry : partitioned_among(params)) {
    comm::on_all_ranks(entry.pool->all_ranks(), "making room for the whole model",
                       [&] { check_memory(entry.params); });
    entry.pool->give_back(entry.params);
  }
}

}  // namespace deepspeed::zero
