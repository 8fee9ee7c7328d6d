// Implements collectives for Gloo by sends and receives between every two ranks. Each rank sends its peers
// their blocks, and adds up what it receives for its own block, piece by piece while the next piece arrives.
// It adds in rank order, and 16-bit types in fp32 with one rounding at the end. An element's sum therefore
// depends neither on the bounds of blocks nor on how many elements are sent together. Every rank sends and
// receives (size - 1) / size of the data, as in a ring. Internal to this folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "deepspeed/base/interval.h"
#include "deepspeed/comm/backends/background.h"

namespace deepspeed::comm {

/// Returns the tag of an operation's messages. `number` counts the group's operations. The tag combines
/// `number` modulo 1024 with 20 bits of `fingerprint`. The tags that a program gives its own messages are
/// lower.
int direct_tag(uint64_t number, uint32_t fingerprint);

/// Returns the elements of a contiguous tensor as bytes, sharing its memory. Operations that only move data
/// can then take any dtype.
at::Tensor bytes_of(const at::Tensor& tensor);

/// Runs the collectives of one group. They start in the order of the calls, which must be the same on all
/// ranks. If ranks give an operation different tags, it never completes.
class DirectExchange {
 public:
  DirectExchange(c10::intrusive_ptr<c10d::Backend> backend, std::chrono::milliseconds timeout);

  /// Returns whether it can sum this dtype: floating point of 16, 32 or 64 bits.
  static bool can_sum(at::ScalarType type);

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  // Tensors are dense, contiguous and on the CPU.
  WorkPtr all_reduce(const at::Tensor& tensor, int tag);
  /// Sums intervals of the tensor, one per rank and disjoint. Afterwards each rank's interval holds its sum;
  /// other elements are unchanged.
  WorkPtr reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned, int tag);
  /// Sums this rank's block of `input`, (size * n), over the ranks into `output`, (n).
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, int tag);
  /// Gathers all ranks' blocks into `output`, (size * n), which already contains this rank's block.
  WorkPtr all_gather(const at::Tensor& output, int tag);
  /// Runs an operation of the backend after all ranks have called this with the same tag.
  WorkPtr run_together(int tag, std::function<WorkPtr(c10d::Backend&)> operation);

  /// Makes the current operation and all later ones fail. Closing the connections would only fail the peers'
  /// operations.
  void abort();

  /// Holds what an operation needs of its group.
  struct Group;

 private:
  std::shared_ptr<Group> group_;
  BackgroundQueue queue_;
};

}  // namespace deepspeed::comm
