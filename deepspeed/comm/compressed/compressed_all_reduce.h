// Averages over ranks with one bit per element and error feedback in both directions. See Tang et al., "1-bit
// Adam: Communication Efficient Large-Scale Training with Adam's Convergence Speed", 2021, algorithm 1.
#pragma once

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

/// Averages tensors of one size. The compression errors of a mean are added to the next one. Calls of one
/// object must not overlap in time.
class CompressedAllReduce {
 public:
  /// `numel` is the size of the tensors.
  CompressedAllReduce(ProcessGroup group, int64_t numel);

  /// Replaces `values`, (numel) fp32, contiguous, by the mean over all ranks. Collective. Values that are not
  /// finite would spoil the errors, so the caller checks for them first.
  void mean(const at::Tensor& values);

  /// Returns the compression errors of earlier means. The first tensor is for the values sent to the ranks
  /// that average chunks, the second for this rank's averaged chunk. The tensors are shared with this object,
  /// and undefined before the first mean.
  std::pair<at::Tensor, at::Tensor> errors() const { return {worker_error_, server_error_}; }
  /// Replaces the errors by copies of another run's errors(). Returns false and discards all errors if the
  /// sizes do not fit, for example after a change of the number of ranks.
  bool load_errors(const at::Tensor& worker, const at::Tensor& server);
  /// Discards the errors on this rank. All ranks must call this.
  void reset();
  /// Returns the bytes of the errors on this rank; 0 before the first mean.
  int64_t bytes() const;
  /// Returns the bytes that this rank sends to each other rank per mean.
  int64_t sent_bytes() const;

 private:
  ProcessGroup group_;
  int64_t numel_;
  int64_t chunk_;  // elements that a rank averages, a multiple of kernels::kSignBlock
  at::Tensor worker_error_, server_error_;  // (ranks * chunk), (chunk) fp32; undefined: zeros
};

}  // namespace deepspeed::comm
