// A mean over ranks that sends one bit an element, with error feedback on both ways (Tang et al., "1-bit
// Adam: Communication Efficient Large-Scale Training with Adam's Convergence Speed", 2021, algorithm 1).
#pragma once

#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

/// Reduces tensors of one size, always the same one: what its bits take from a mean is added to the next.
/// Reductions of one object come one after the other.
class CompressedAllReduce {
 public:
  /// numel: of the tensors.
  CompressedAllReduce(ProcessGroup group, int64_t numel);

  /// Replaces `values`, (numel) fp32, contiguous, by what all ranks get as their mean. Collective. Values
  /// that are not finite spoil the errors too: the caller looks for them first.
  void mean(const at::Tensor& values);

  /// Returns what was taken from earlier means, on the way to a chunk's rank and on the way back: shared,
  /// undefined where nothing was.
  std::pair<at::Tensor, at::Tensor> errors() const { return {worker_error_, server_error_}; }
  /// Takes copies of errors() of a run on as many ranks. Returns false, and keeps none, where sizes do not
  /// fit.
  bool load_errors(const at::Tensor& worker, const at::Tensor& server);
  /// Forgets what was taken from earlier means, on this rank; all ranks do so.
  void reset();
  /// Bytes of errors that are kept.
  int64_t bytes() const;
  /// Bytes that this rank sends to each other rank in a mean, both ways together.
  int64_t sent_bytes() const;

 private:
  ProcessGroup group_;
  int64_t numel_;
  int64_t chunk_;  // elements that a rank averages, a multiple of kernels::kSignBlock
  at::Tensor worker_error_, server_error_;  // (ranks * chunk), (chunk) fp32; undefined: zeros
};

}  // namespace deepspeed::comm
