// Saved tensors wait for backward in the host's memory: no recomputation, and no device memory for them.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace deepspeed::checkpointing {

struct OffloadOptions {
  int64_t budget_bytes = std::numeric_limits<int64_t>::max();  // of host memory; what is beyond stays
  int64_t min_offload_bytes = int64_t{1} << 20;                // smaller tensors stay where they are
  std::vector<at::Tensor> excluded = {};                       // such as the model's parameters
};

/// While it lives, what operators of this thread save for backward is copied to the host, beside the
/// computation, and back when backward needs it. Each tensor is copied once, however many operators save it.
/// Gradients are those of a plain run bit for bit. Tensors that functions of the program's own capture are
/// not seen.
class DEEPSPEED_API OffloadActivations {
 public:
  explicit OffloadActivations(OffloadOptions options = {});
  ~OffloadActivations();
  OffloadActivations(const OffloadActivations&) = delete;
  OffloadActivations& operator=(const OffloadActivations&) = delete;

  /// Bytes that are in the host's memory now.
  int64_t offloaded_bytes() const;
  int64_t num_copies() const;

 private:
  class Mover;
  std::unique_ptr<Mover> mover_;
};

}  // namespace deepspeed::checkpointing
