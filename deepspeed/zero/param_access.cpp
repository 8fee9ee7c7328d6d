#include "deepspeed/zero/param_access.h"

#include <algorithm>
#include <utility>

#include "deepspeed/zero/access/gather_pool.h"

namespace deepspeed::zero {
namespace {

std::vector<std::shared_ptr<GatherPool>> pools_of(const std::vector<at::Tensor>& params) {
  std::vector<std::shared_ptr<GatherPool>> pools;
  for (const at::Tensor& param : params) {
    const auto storage = partitioned_storage_of(param);
    if (!storage) continue;
    if (std::find(pools.begin(), pools.end(), storage->pool()) == pools.end())
      pools.push_back(storage->pool());
  }
  return pools;
}

}  // namespace

ParameterAccess::ParameterAccess(std::shared_ptr<GatherPool> pool, AccessMode mode)
    : pools_{std::move(pool)} {
  pools_.front()->open_window(mode);
}

ParameterAccess::ParameterAccess(const std::vector<at::Tensor>& params, AccessMode mode)
    : pools_(pools_of(params)) {
  size_t num_open = 0;
  try {
    for (; num_open < pools_.size(); ++num_open) pools_[num_open]->open_window(mode);
  } catch (...) {
    while (num_open > 0) pools_[--num_open]->close_window();
    throw;
  }
}

ParameterAccess::~ParameterAccess() {
  for (const auto& pool : pools_) pool->close_window();
}

}  // namespace deepspeed::zero
