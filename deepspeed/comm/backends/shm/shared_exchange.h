// Runs a group's operations on tensors over shared memory. Internal to this folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "deepspeed/base/interval.h"
#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/comm/shm/member.h"

namespace deepspeed::comm {

/// Runs the operations of one group one by one. Their order is that of the calls, which must be the same on
/// all ranks. A caller that waits runs them up to its own operation; otherwise a thread runs them. If ranks
/// give an operation different fingerprints, it never completes.
class SharedExchange {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  SharedExchange(std::unique_ptr<shm::Member> member, std::chrono::milliseconds timeout);
  /// Ends current operations without waiting.
  ~SharedExchange();
  SharedExchange(const SharedExchange&) = delete;
  SharedExchange& operator=(const SharedExchange&) = delete;

  /// Returns whether elements of this type can be reduced by `op` over shared memory.
  static bool can_reduce(at::ScalarType type, ReduceOp op);

  // Tensors are dense, contiguous and on the CPU. Reductions are limited to can_reduce(). 16-bit types are
  // reduced in fp32 and rounded once.
  WorkPtr all_reduce(const at::Tensor& tensor, ReduceOp op, uint64_t fingerprint);
  WorkPtr broadcast(const at::Tensor& tensor, int root, uint64_t fingerprint);
  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input, uint64_t fingerprint);
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                         uint64_t fingerprint);
  /// Sums intervals of the tensor, one per rank, over the ranks. This rank's sum goes to own.result, or if
  /// own.result is undefined, to this rank's interval. Elements outside this rank's interval are unchanged.
  WorkPtr reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned, const OwnSum& own,
                           uint64_t fingerprint);
  WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input, uint64_t fingerprint);
  WorkPtr barrier(uint64_t fingerprint);
  WorkPtr send(const at::Tensor& tensor, int peer, int tag);
  WorkPtr receive(const at::Tensor& tensor, int peer, int tag);

  /// Makes current and later operations fail.
  void abort();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace deepspeed::comm
