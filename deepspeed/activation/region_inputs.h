// The inputs of a recomputed region, kept as the options say until backward needs them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/activation/options.h"

namespace deepspeed::checkpointing {

using Tensors = std::vector<at::Tensor>;

/// Memory for the parts of the inputs of all regions of a forward, by the place of an input among them.
class ContiguousBuffers;

/// How inputs are kept. Shared by the regions of a program.
struct Keeping {
  CheckpointOptions options;
  comm::ProcessGroup model_group;  // ranks among which inputs are partitioned; none: this one alone
  std::shared_ptr<ContiguousBuffers> buffers;

  bool partitions() const { return options.partition_activations && model_group && model_group.size() > 1; }
};

/// One input as it is kept.
struct KeptInput {
  at::Tensor kept;             // the tensor itself, its part, or a copy on the host; undefined as given
  std::vector<int64_t> sizes;  // of the whole tensor
  at::Device device = at::kCPU;
  bool is_part = false;
  std::shared_ptr<void> lease = {};  // of a place in ContiguousBuffers
};

/// Keeps an input. Floating-point tensors of at least as many elements as there are model-parallel ranks are
/// kept as the options say, others as they are. Throws UsageError for one whose elements the ranks do not
/// divide.
KeptInput keep_input(const at::Tensor& input, size_t place, const Keeping& keeping);
/// Gives it back whole on its device. Where parts are kept all model-parallel ranks call it in one order.
at::Tensor restore_input(const KeptInput& input, const at::Tensor& kept, const Keeping& keeping);

class ContiguousBuffers {
 public:
  explicit ContiguousBuffers(int64_t num_checkpoints) : num_checkpoints_(num_checkpoints) {}
  /// Copies a part into the next free place of the buffer of inputs at `place`, from the front once all
  /// leases of what was put are gone. Throws UsageError where there are more regions than num_checkpoints.
  at::Tensor put(size_t place, const at::Tensor& part, at::Device device, std::shared_ptr<void>& lease);
  /// Begins anew: nothing that was put is needed any more.
  void clear() { buffers_.clear(); }

 private:
  struct Buffer {
    at::Tensor memory;
    int64_t used = 0;
    std::weak_ptr<void> lease;  // of all that was put since it began at the front
  };
  int64_t num_checkpoints_;
  std::vector<Buffer> buffers_;  // by place
};

}  // namespace deepspeed::checkpointing
