#include "deepspeed/zero/offload/parked_storages.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/GradMode.h>

#include "deepspeed/device/accelerator/host_memory.h"

namespace deepspeed::zero {
namespace {

/// Returns all bytes of the storage as a tensor, (n).
at::Tensor bytes_of_storage(const c10::Storage& storage) {
  const auto bytes = static_cast<int64_t>(storage.nbytes());
  return at::empty({0}, at::TensorOptions().dtype(at::kByte).device(storage.device()))
      .set_(storage, 0, {bytes}, {1});
}

}  // namespace

void ParkedStorages::park(const at::Tensor& tensor, bool pin_memory, bool non_blocking) {
  if (!tensor.defined() || tensor.storage().nbytes() == 0) return;
  const c10::NoGradGuard no_grad;
  c10::Storage storage = tensor.storage();
  if (holds(tensor)) return;
  const at::Tensor bytes = bytes_of_storage(storage);
  // This memory may be given back while copies from it are in flight. The pool waits for them in the
  // background.
  at::Tensor host = device::empty_host_from_pool(bytes.numel(), at::kByte, pin_memory);
  host.copy_(bytes, non_blocking && pin_memory);
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(c10::DataPtr(nullptr, storage.device()));
  parked_.push_back({std::move(storage), std::move(host)});
}

void ParkedStorages::empty(const at::Tensor& param) {
  if (param.numel() == 0) return;
  at::Tensor values = param.variable_data();
  param.set_data(at::empty({0}, values.options()));
  emptied_.push_back({param, std::move(values)});
}

bool ParkedStorages::holds(const at::Tensor& tensor) const {
  const auto is_emptied = [&](const Emptied& emptied) { return emptied.param.is_same(tensor); };
  const auto is_parked = [&](const Parked& parked) {
    return parked.storage.unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl();
  };
  return std::ranges::any_of(emptied_, is_emptied) || std::ranges::any_of(parked_, is_parked);
}

void ParkedStorages::restore(bool non_blocking) {
  const c10::NoGradGuard no_grad;
  while (!parked_.empty()) {
    const Parked& parked = parked_.back();
    const c10::OptionalDeviceGuard guard(parked.storage.device());
    c10::Allocator* const allocator = c10::GetAllocator(parked.storage.device_type());
    parked.storage.unsafeGetStorageImpl()->set_data_ptr_noswap(allocator->allocate(parked.storage.nbytes()));
    bytes_of_storage(parked.storage).copy_(parked.bytes, non_blocking);
    parked_.pop_back();
  }
  for (const Emptied& emptied : emptied_) emptied.param.set_data(emptied.values);
  emptied_.clear();
}

int64_t ParkedStorages::bytes() const {
  int64_t bytes = 0;
  for (const Parked& parked : parked_) bytes += parked.bytes.numel();
  return bytes;
}

}  // namespace deepspeed::zero
