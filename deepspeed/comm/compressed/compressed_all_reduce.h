// Averages over ranks with one bit per element and error feedback in both directions. See Tang et al., "1-bit
// Adam: Communication Efficient Large-Scale Training with Adam's Convergence Speed", 2021, algorithm 1.
#pragma once

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

/// Averages tensors of one size. The compression errors of a mean are added to the next one. The reductions
/// of one object must not overlap.
class CompressedAllReduce {
 public:
  /// `numel` is the size of the tensors.
  CompressedAllReduce(ProcessGroup group, int64_t numel);

  /// Replaces `values`, (numel) fp32, contiguous, by the mean over all ranks. Collective. Values that are not
  /// finite would spoil the errors, so the caller checks for them first.
  void mean(const at::Tensor& values);

  /// Returns the errors of earlier means, on the way to a chunk's rank and back. The tensors are shared with
  /// this object, and undefined before the first mean.
  std::pair<at::Tensor, at::Tensor> errors() const { return {worker_error_, server_error_}; }
  /// Copies the errors() of a run with as many ranks. Returns false and discards them if the sizes do not
  /// fit.
  bool load_errors(const at::Tensor& worker, const at::Tensor& server);
  /// Discards the errors on this rank. All ranks must do so.
  void reset();
  /// Returns the bytes of the errors.
  int64_t bytes() const;
  /// Returns the bytes sent to each other rank per mean, in both directions.
  int64_t sent_bytes() const;

 private:
  ProcessGroup group_;
  int64_t numel_;
  int64_t chunk_;  // elements that a rank averages, a multiple of kernels::kSignBlock
  at::Tensor worker_error_, server_error_;  // (ranks * chunk), (chunk) fp32; undefined: zeros
};

}  // namespace deepspeed::comm
