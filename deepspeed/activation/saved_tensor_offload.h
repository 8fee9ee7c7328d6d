// Keeps saved tensors on the host instead of recomputing. Copies overlap compute and stay within a budget.
#pragma once

#include <cstdint>
#include <memory>

#include "deepspeed/autograd/saved_tensors.h"
#include "deepspeed/base/export.h"

namespace deepspeed {

struct SavedTensorOffloadOptions {
  /// Limits the bytes of host memory that all copies take together. Tensors beyond that stay on the device.
  int64_t host_bytes = 0;
  /// Keeps tensors of fewer bytes than this on the device.
  int64_t least_bytes = 1 << 20;
  /// Copies CPU tensors too, which saves no memory: for testing programs without a device.
  bool from_cpu = false;
};

/// Copies what forwards in its scope save to the host. A tensor that several nodes save is copied once.
/// Parameters are never copied. Backward copies tensors back, each ahead of its use. One object serves the
/// forwards of one thread.
class DEEPSPEED_API SavedTensorOffload : public autograd::SavedTensorHooks {
 public:
  /// Throws UsageError for a negative budget or size.
  explicit SavedTensorOffload(const SavedTensorOffloadOptions& options);
  ~SavedTensorOffload() override;

  /// Returns the bytes on the host now; num_copies() is the number of copies made so far.
  int64_t bytes_on_host() const;
  int64_t num_copies() const;
  /// Returns how many copies were already on their way back when backward asked for them.
  int64_t num_prefetched() const;

  std::unique_ptr<autograd::PackedTensor> pack(const at::Tensor& tensor) override;
  bool takes_leaf(const at::TensorImpl*) override { return false; }

  class State;

 private:
  std::shared_ptr<State> state_;
};

/// Passes what the thread's forwards save to `offload` while it exists. That includes inputs of checkpoint(),
/// unless its configuration partitions them or keeps them on the host.
using SavedTensorOffloadScope = autograd::SavedTensorScope;

}  // namespace deepspeed
