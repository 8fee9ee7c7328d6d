// The operations of a group over shared memory, on tensors. Internal to this folder.
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

/// Each group has one. Operations run one after the other, in the order of the calls, which must be the same
/// on all ranks; whoever waits first runs them, else a thread. Ranks whose fingerprints differ do not meet.
class SharedExchange {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  SharedExchange(std::unique_ptr<shm::Member> member, std::chrono::milliseconds timeout);
  /// Ends what is under way; waits for nothing.
  ~SharedExchange();
  SharedExchange(const SharedExchange&) = delete;
  SharedExchange& operator=(const SharedExchange&) = delete;

  /// Says whether elements of this type can be reduced so.
  static bool can_reduce(at::ScalarType type, ReduceOp op);

  // Tensors are dense, contiguous and on the CPU. Reductions are those of can_reduce(); 16-bit types are
  // reduced in fp32 and rounded once.
  WorkPtr all_reduce(const at::Tensor& tensor, ReduceOp op, uint64_t fingerprint);
  WorkPtr broadcast(const at::Tensor& tensor, int root, uint64_t fingerprint);
  WorkPtr all_gather(const at::Tensor& output, const at::Tensor& input, uint64_t fingerprint);
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op,
                         uint64_t fingerprint);
  /// Sums into intervals, of which each rank has one, or this rank's into own.result. The other elements stay
  /// as they are.
  WorkPtr reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned, const OwnSum& own,
                           uint64_t fingerprint);
  WorkPtr all_to_all(const at::Tensor& output, const at::Tensor& input, uint64_t fingerprint);
  WorkPtr barrier(uint64_t fingerprint);
  WorkPtr send(const at::Tensor& tensor, int peer, int tag);
  WorkPtr receive(const at::Tensor& tensor, int peer, int tag);

  /// Ends the operations under way, and all later ones, with an error.
  void abort();

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace deepspeed::comm
