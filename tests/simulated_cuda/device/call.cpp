#include "tests/simulated_cuda/device/call.h"

#include <cstring>

#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>

namespace deepspeed::simulated {

Span span_of(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return {};
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  const size_t each = tensor.element_size();
  return {static_cast<size_t>(tensor.storage_offset()) * each, static_cast<size_t>(last + 1) * each};
}

at::Tensor Call::on_cpu(const at::Tensor& tensor, bool writes) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  TORCH_CHECK(tensor.has_storage(), name_, " of a tensor without storage");
  if (device_ < 0) device_ = tensor.get_device();
  const Span span = span_of(tensor);
  const auto& data = tensor.storage().data_ptr();
  if (span.length > 0) {
    TORCH_CHECK(data.get() != nullptr, name_, " of a tensor whose memory is away");
    TORCH_CHECK(span.begin + span.length <= tensor.storage().nbytes(), name_, " outside of its storage");
    uses_.push_back({static_cast<const char*>(data.get()) + span.begin, span.length, writes});
  }
  const auto known = tensors_.find(tensor.unsafeGetTensorImpl());
  if (known != tensors_.end()) {
    if (writes) written_.push_back(known->second);
    return known->second.cpu;
  }
  Storages& storages = storages_[tensor.storage().unsafeGetStorageImpl()];
  if (!storages.device) {
    storages.device = tensor.storage();
    const size_t bytes = tensor.storage().nbytes();
    char* const place = bytes > 0 && data.get() != nullptr ? bytes_at(data.get()) : nullptr;
    // It can be resized, into memory of its own; finish() sees that.
    storages.cpu =
        c10::Storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(place, c10::Device(c10::kCPU)),
                     c10::GetCPUAllocator(), /*resizable=*/true);
  }
  at::Tensor made = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storages.cpu), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(),
                                                    tensor.storage_offset());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) made.unsafeGetTensorImpl()->set_wrapped_number(true);
  if (tensor.is_conj()) made._set_conj(true);
  if (tensor.is_neg()) made._set_neg(true);
  const Pair pair{tensor, made};
  tensors_[tensor.unsafeGetTensorImpl()] = pair;
  if (writes) written_.push_back(pair);
  return made;
}

void Call::launch() {
  if (device_ >= 0) launch_on(stream());
}

void Call::launch_on(const c10::Stream& stream) { races_ = !simulated::launch(name_.c_str(), stream, uses_); }

void Call::move_resized(const Pair& pair) {
  const c10::Storage &from = pair.cpu.storage(), &to = pair.device.storage();
  const bool moved = to.data() != nullptr ? from.data() != bytes_at(to.data()) : from.nbytes() > 0;
  if (moved) {
    auto data = device_allocator()->allocate(from.nbytes());
    if (from.nbytes() > 0) std::memcpy(bytes_at(data.get()), from.data(), from.nbytes());
    to.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
    to.unsafeGetStorageImpl()->set_nbytes(from.nbytes());
    simulated::launch(name_.c_str(), stream(), {{to.data(), to.nbytes(), true}});
  }
  if (moved || !pair.cpu.sizes().equals(pair.device.sizes())) {
    pair.device.unsafeGetTensorImpl()->set_sizes_and_strides(pair.cpu.sizes(), pair.cpu.strides(),
                                                             pair.cpu.storage_offset());
  }
}

void Call::finish() {
  for (const Pair& pair : written_) {
    move_resized(pair);
    const Span span = span_of(pair.device);
    if (races_ && span.length > 0) {
      std::memset(bytes_at(static_cast<const char*>(pair.device.storage().data()) + span.begin), kPoison,
                  span.length);
    }
  }
}

at::Tensor Call::on_device(const at::Tensor& result) {
  if (!result.defined() || result.is_cuda()) return result;
  for (const auto& [impl, pair] : tensors_) {
    if (pair.cpu.unsafeGetTensorImpl() == result.unsafeGetTensorImpl()) return pair.device;
  }
  for (const auto& [impl, storages] : storages_) {
    if (storages.cpu.unsafeGetStorageImpl() != result.storage().unsafeGetStorageImpl()) continue;
    at::Tensor view =
        at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(storages.device),
                                                 c10::DispatchKeySet(c10::DispatchKey::CUDA), result.dtype());
    view.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides(),
                                                      result.storage_offset());
    return view;
  }
  // New memory of the device, with the strides that the CPU's kernel chose.
  const c10::Device place = device_of(device_);
  at::Tensor made = at::empty_strided(result.sizes(), result.strides(),
                                      result.options().device(place).pinned_memory(false));
  const Span span = span_of(result);
  if (span.length > 0) {
    char* const bytes = bytes_at(made.storage().data());
    std::memcpy(bytes, static_cast<const char*>(result.storage().data()) + span.begin, span.length);
    if (races_) std::memset(bytes, kPoison, span.length);
    simulated::launch(name_.c_str(), current_stream(place.index()),
                      {{made.storage().data(), span.length, true}});
  }
  if (result.unsafeGetTensorImpl()->is_wrapped_number()) made.unsafeGetTensorImpl()->set_wrapped_number(true);
  return made;
}

}  // namespace deepspeed::simulated
