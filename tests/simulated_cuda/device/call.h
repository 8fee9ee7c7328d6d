// The work of one operator: its device tensors as the CPU sees them.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "tests/simulated_cuda/device/memory.h"
#include "tests/simulated_cuda/device/streams.h"

namespace deepspeed::simulated {

class Call {
 public:
  explicit Call(std::string name) : name_(std::move(name)) {}

  /// Returns a tensor of the CPU over the same bytes; tensors that share memory, or are one, still do. One
  /// that lies on the CPU is returned itself.
  at::Tensor on_cpu(const at::Tensor& tensor, bool writes);
  /// Notes memory that no argument is.
  void use(const void* data, size_t bytes, bool writes) { uses_.push_back({data, bytes, writes}); }
  /// Gives the work to the current stream of its device. All arguments were given to on_cpu() before.
  void launch();
  /// Gives it to a stream.
  void launch_on(const c10::Stream& stream);
  /// Call it after the work. What was written by work that races becomes poison; what was resized is so on
  /// the device.
  void finish();
  /// Returns a result as a tensor of the device: an argument, a view of one, or a new tensor.
  at::Tensor on_device(const at::Tensor& result);

  bool has_device_tensors() const { return device_ >= 0; }
  bool races() const { return races_; }
  c10::Stream stream() const { return current_stream(device_); }

 private:
  struct Pair {
    at::Tensor device, cpu;
  };
  struct Storages {
    c10::Storage device, cpu;
  };
  void move_resized(const Pair& pair);

  std::string name_;
  int device_ = -1;
  bool races_ = false;
  std::vector<Use> uses_;
  std::map<const c10::StorageImpl*, Storages> storages_;  // by the device's
  std::map<const c10::TensorImpl*, Pair> tensors_;        // by the device's
  std::vector<Pair> written_;
};

/// The bytes from a tensor's first to its last element, in its storage.
struct Span {
  size_t begin = 0, length = 0;
};
Span span_of(const at::Tensor& tensor);

}  // namespace deepspeed::simulated
