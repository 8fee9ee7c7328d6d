#include "deepspeed/zero/params/set_values.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>

#include "deepspeed/zero/access/gather_pool.h"

namespace deepspeed::zero {

bool is_partitioned(const at::Tensor& tensor) { return record_of(tensor) != nullptr; }

at::Tensor shard_of(const at::Tensor& tensor) {
  const auto storage = partitioned_storage_of(tensor);
  if (!storage || !storage->shard()) return {};
  const auto& shard = storage->shard();
  if (const at::Tensor memory = shard->memory(); memory.defined()) return memory;
  const at::Tensor copy = at::empty({shard->numel()}, shard->dtype());
  shard->read(copy);
  return copy;
}

at::Tensor own_elements_of(const at::Tensor& tensor) {
  const at::Tensor shard = shard_of(tensor);
  if (!shard.defined()) return {};
  const auto storage = partitioned_storage_of(tensor);
  const int64_t begin = storage->pool()->shard_group().rank() * shard.numel();
  return shard.narrow(0, 0, std::clamp<int64_t>(tensor.numel() - begin, 0, shard.numel()));
}

std::vector<int> ranks_that_hold(const at::Tensor& tensor) {
  const auto storage = partitioned_storage_of(tensor);
  return storage ? storage->pool()->all_ranks().global_ranks() : std::vector<int>();
}

int64_t held_bytes(const at::Tensor& tensor) {
  const auto storage = partitioned_storage_of(tensor);
  if (!storage) return static_cast<int64_t>(tensor.nbytes());
  return storage->shard()->memory().defined() ? storage->shard()->bytes() : 0;
}

int64_t disk_bytes(const at::Tensor& tensor) {
  const auto storage = partitioned_storage_of(tensor);
  return storage && !storage->shard()->memory().defined() ? storage->shard()->bytes() : 0;
}

void check_settable(const at::Tensor& tensor) {
  if (const auto storage = partitioned_storage_of(tensor)) storage->pool()->check_settable(*storage);
}

void set_values(const at::Tensor& tensor, const at::Tensor& values) {
  const c10::NoGradGuard no_grad;
  if (const auto storage = partitioned_storage_of(tensor))
    return storage->pool()->set_values(*storage, values);
  tensor.detach().copy_(values);
}

}  // namespace deepspeed::zero
