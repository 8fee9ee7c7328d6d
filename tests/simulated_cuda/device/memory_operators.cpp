// Operators that make memory, view it, or move its content between host and device.
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "tests/simulated_cuda/device/call.h"
#include "tests/simulated_cuda/device/graphs.h"
#include "tests/simulated_cuda/device/host_copies.h"

namespace deepspeed::simulated {
namespace {

using OptionalType = std::optional<at::ScalarType>;
using OptionalLayout = std::optional<at::Layout>;
using OptionalDevice = std::optional<at::Device>;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::CUDA);

// --- new memory

at::Tensor empty(at::IntArrayRef size, OptionalType dtype, OptionalLayout, OptionalDevice device,
                 std::optional<bool> pin, std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::OptionalDeviceGuard guard(device_of(device ? device->index() : -1));
  return at::detail::empty_generic(size, device_allocator(), kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, OptionalType dtype, OptionalLayout,
                         OptionalDevice device, std::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::OptionalDeviceGuard guard(device_of(device ? device->index() : -1));
  return at::detail::empty_strided_generic(size, stride, device_allocator(), kKeys,
                                           c10::dtype_or_default(dtype));
}

void grow(const c10::Storage& storage, size_t bytes) {
  if (bytes <= storage.nbytes()) return;
  if (storage.nbytes() > 0) refuse_in_capture("a resize that keeps values");
  const c10::OptionalDeviceGuard guard(storage.device());
  auto data = device_allocator()->allocate(bytes);
  if (storage.nbytes() > 0) {
    launch("resize", current_stream(storage.device().index()),
           {{storage.data(), storage.nbytes(), false}, {data.get(), storage.nbytes(), true}});
    std::memcpy(bytes_at(data.get()), bytes_at(storage.data()), storage.nbytes());
  }
  storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
  storage.unsafeGetStorageImpl()->set_nbytes(bytes);
}

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat>) {
  self.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  grow(self.storage(), static_cast<size_t>(self.numel() + self.storage_offset()) * self.element_size());
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                        at::IntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  std::vector<int64_t> strides(stride.begin(), stride.end());
  if (stride.size() != size.size()) {
    strides.assign(size.size(), 1);
    for (size_t i = size.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * std::max<int64_t>(size[i], 1);
  }
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, strides, offset);
  const Span span = span_of(self);
  grow(self.storage(), span.begin + span.length);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto numel = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_storage(self, std::move(source), 0, {numel}, {1});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  return set_storage(self, c10::Storage(c10::Storage::use_byte_size_t(), 0, device_allocator(), true), 0, {0},
                     {1});
}

// --- views

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}
at::Tensor view(const at::Tensor& self, at::IntArrayRef size) { return at::native::view(self, size); }
at::Tensor reshape_alias(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  return at::native::_reshape_alias(self, size, stride);
}
at::Tensor unfold(const at::Tensor& self, int64_t dimension, int64_t size, int64_t step) {
  return at::native::unfold(self, dimension, size, step);
}

// --- host and device

void copy_on_device(const at::Tensor& self, const at::Tensor& source) {
  Call call("copy_ on the device");
  const at::Tensor to = call.on_cpu(self, true), from = call.on_cpu(source, false);
  const c10::OptionalDeviceGuard guard(source.device());
  if (self.device() != source.device()) {  // torch's copy between devices waits on both sides
    stream_waits(current_stream(self.get_device()), clock_of(current_stream(source.get_device())));
    stream_waits(current_stream(source.get_device()), clock_of(current_stream(self.get_device())));
  }
  call.launch_on(current_stream(source.get_device()));
  to.copy_(from);
  call.finish();
  repeat_in_graph([to, from] { to.copy_(from); });
  if (self.device() != source.device())
    stream_waits(current_stream(self.get_device()), clock_of(current_stream(source.get_device())));
}

void copy_with_host(const at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  refuse_in_capture("a copy between the host and the device");
  const bool to_host = !self.is_cuda();
  const char* const name = to_host ? "copy_ to the host" : "copy_ to the device";
  Call call(name);
  const at::Tensor to = call.on_cpu(self, true), from = call.on_cpu(source, false);
  const at::Tensor& host = to_host ? self : source;
  const Span span = span_of(host);
  char* const data = static_cast<char*>(const_cast<void*>(host.storage().data())) + span.begin;
  const bool pinned = is_pinned(data), is_late = non_blocking && pinned;
  if (pinned) call.use(data, span.length, to_host);
  call.launch();
  if (pinned) reveal(data, span.length, to_host);
  to.copy_(from);
  call.finish();
  if (to_host && call.races()) std::memset(data, kPoison, span.length);
  if (is_late && !to_host) watch_source(name, call.stream(), data, span.length);
  if (is_late && to_host && host.is_non_overlapping_and_dense())
    hide_destination(name, call.stream(), data, span.length);
  // The driver has read pageable memory when it returns, and has written it.
  if (!is_late && (to_host || !non_blocking)) host_waits(clock_of(call.stream()), name);
}

at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  if (self.numel() == 0 || self.is_same(source)) return self;
  if (self.is_cuda() && source.is_cuda()) {
    copy_on_device(self, source.expand_as(self));
  } else {
    copy_with_host(self, source.expand_as(self), non_blocking);
  }
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  at::Tensor out = to;
  out.resize_(self.sizes());
  return copy_(out, self, false);
}

at::Scalar local_scalar(const at::Tensor& self) {
  refuse_in_capture("item()");
  Call call("item");
  const at::Tensor on_cpu = call.on_cpu(self, false);
  call.launch();
  host_waits(clock_of(call.stream()), "item()");
  if (call.races() && at::isFloatingType(self.scalar_type())) return std::numeric_limits<double>::quiet_NaN();
  return at::_local_scalar_dense(on_cpu);
}

void record(at::Tensor& self, at::Stream stream) { record_stream(self.storage().data(), stream); }

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("resize_", &resize_);
  library.impl("set_.source_Storage_storage_offset", &set_storage);
  library.impl("set_.source_Storage", &set_whole_storage);
  library.impl("set_.source_Tensor", &set_tensor);
  library.impl("set_", &set_nothing);
  library.impl("as_strided", &as_strided);
  library.impl("view", &view);
  library.impl("_reshape_alias", &reshape_alias);
  library.impl("unfold", &unfold);
  library.impl("copy_", &copy_);
  library.impl("_copy_from_and_resize", &copy_from_and_resize);
  library.impl("_local_scalar_dense", &local_scalar);
  library.impl("record_stream", &record);
}

}  // namespace
}  // namespace deepspeed::simulated
