// Saved tensors on the host: no recomputation, but copies beside compute, up to a stated budget.
#pragma once

#include <cstdint>
#include <memory>

#include "deepspeed/autograd/saved_tensors.h"
#include "deepspeed/base/export.h"

namespace deepspeed {

struct SavedTensorOffloadOptions {
  /// The most bytes of host memory that copies take at a time; what comes beyond stays on the device.
  int64_t host_bytes = 0;
  /// Smaller tensors stay.
  int64_t least_bytes = 1 << 20;
  /// Copies tensors of the CPU as well, which saves no memory: for programs that are tried without a device.
  bool from_cpu = false;
};

/// Copies what forwards in its scope save to the host, each storage once however many nodes save it,
/// parameters never. Backward copies back, the next tensor ahead of its use. One object serves one thread's
/// forwards.
class DEEPSPEED_API SavedTensorOffload : public autograd::SavedTensorHooks {
 public:
  /// Throws UsageError for a negative budget or size.
  explicit SavedTensorOffload(const SavedTensorOffloadOptions& options);
  ~SavedTensorOffload() override;

  /// Bytes that stand on the host now, and how many copies to it were made so far.
  int64_t bytes_on_host() const;
  int64_t num_copies() const;
  /// How many of them were on their way back before backward asked for them.
  int64_t num_prefetched() const;

  std::unique_ptr<autograd::PackedTensor> pack(const at::Tensor& tensor) override;
  bool takes_leaf(const at::TensorImpl*) override { return false; }

  class State;

 private:
  std::shared_ptr<State> state_;
};

/// Sends what the thread's forwards save through `offload` while it lives. Inputs of checkpointed regions go
/// the same way, unless the configuration partitions them or keeps them on the host itself.
using SavedTensorOffloadScope = autograd::SavedTensorScope;

}  // namespace deepspeed
