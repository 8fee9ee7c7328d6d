// Collectives are made here of sends and receives between every two ranks, for Gloo. Each rank sends its
// peers their blocks and adds up what it receives for its own, piece by piece while the next piece travels,
// always in the order of the ranks and, for 16-bit types, in fp32 with one rounding at the end: an element's
// sum depends neither on the bounds of the blocks nor on how many elements travel together. Every rank sends
// and receives (size - 1) / size of the data, as a ring does. Internal to this folder.
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

/// Returns the tag of an operation's messages. It belongs to one `number` (a group's operations count on) and
/// `fingerprint` (20 bits) alone, and lies apart from the tags of a caller's own sends, which lie below.
int direct_tag(uint64_t number, uint32_t fingerprint);

/// Each group has one. Its operations start in the order of the calls, which must be the same on all ranks.
/// Ranks whose tags differ do not meet.
class DirectExchange {
 public:
  DirectExchange(c10::intrusive_ptr<c10d::Backend> backend, std::chrono::milliseconds timeout);

  /// Says whether sums of this dtype are done here: floating types of 16, 32 and 64 bits.
  static bool can_sum(at::ScalarType type);

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  // Tensors are dense, contiguous and on the CPU.
  WorkPtr all_reduce(const at::Tensor& tensor, int tag);
  /// Sums into intervals. `owned` has an interval of the tensor's elements a rank, without common elements.
  /// Afterwards each rank's interval holds the sum; the other elements are as before.
  WorkPtr reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned, int tag);
  /// Sums this rank's block of the input. output: (n), input: (size * n).
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input, int tag);
  /// Gathers into `output`, (size * n), with this rank's block in place.
  WorkPtr all_gather(const at::Tensor& output, int tag);
  /// Runs an operation of the backend's own, once every rank has come to the one with this tag.
  WorkPtr run_together(int tag, std::function<WorkPtr(c10d::Backend&)> operation);

  /// Ends the operation under way, and all later ones, with an error. Closing the connections ends only those
  /// of the peers.
  void abort();

  /// Holds what an operation needs of its group.
  struct Group;

 private:
  std::shared_ptr<Group> group_;
  BackgroundQueue queue_;
};

}  // namespace deepspeed::comm
