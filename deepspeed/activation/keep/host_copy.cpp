#include "deepspeed/activation/keep/host_copy.h"

#include <map>
#include <tuple>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>

#include "deepspeed/base/error.h"
#include "deepspeed/device/accelerator/host_memory.h"
#include "deepspeed/device/streams/side_stream.h"

namespace deepspeed::activation {
namespace {

/// Returns this thread's stream for a device's copies in one direction. These queue behind each other anyway.
const device::SideStream& stream_of(c10::Device device, bool to_host) {
  thread_local std::map<std::pair<c10::Device, bool>, device::SideStream,
                        decltype([](const auto& a, const auto& b) {
                          return std::tuple(a.first.type(), a.first.index(), a.second) <
                                 std::tuple(b.first.type(), b.first.index(), b.second);
                        })>
      streams;
  return streams.try_emplace({device, to_host}, device).first->second;
}

at::Tensor host_memory_for(const at::Tensor& tensor) {
  return device::empty_host_from_pool(tensor.numel(), tensor.scalar_type(), /*pin=*/!tensor.is_cpu())
      .as_strided(tensor.sizes(), tensor.strides());
}

}  // namespace

HostCopy::HostCopy(const at::Tensor& tensor)
    : host_(host_memory_for(tensor)),
      options_(tensor.options()),
      source_(tensor.unsafeGetTensorImpl()->version_counter()),
      version_(source_.current_version()),
      counted_(host_, CountedTensor::Place::kHost) {
  const at::NoGradGuard no_grad;
  copied_ = stream_of(tensor.device(), /*to_host=*/true).copy(host_, tensor.detach());
}

void HostCopy::check_version() const {
  if (source_.current_version() == version_) return;
  raise<UsageError>("a tensor of ", host_.scalar_type(), " and sizes ", host_.sizes(),
                    " that backward needs was written in place while its copy went to the host; write into a "
                    "clone() of it");
}

bool HostCopy::prefetch() {
  if (back_.defined()) return false;
  const at::NoGradGuard no_grad;
  // The memory belongs to the current stream, which reads it. The copy waits for the work already on that
  // stream.
  back_ = at::empty_strided(host_.sizes(), host_.strides(), options_);
  const auto& stream = stream_of(options_.device(), /*to_host=*/false);
  const auto scope = stream.enter();
  copied_.hold_current_stream();
  is_back_ = stream.copy_at_once(back_, host_);
  return true;
}

at::Tensor HostCopy::fetch() {
  check_version();
  prefetch();
  is_back_.hold_current_stream();
  return std::exchange(back_, at::Tensor());
}

}  // namespace deepspeed::activation
