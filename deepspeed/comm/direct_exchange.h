// Collectives made of sends and receives between every two ranks, for Gloo. Each rank sends its peers their
// blocks and adds up what it receives for its own, piece by piece while the next piece travels, always in the
// order of the ranks and, for 16-bit types, in fp32 with one rounding at the end: an element's sum depends
// neither on the bounds of the blocks nor on how many elements travel together. Every rank sends and receives
// (size - 1) / size of the data, as a ring does. Internal to this folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "deepspeed/base/interval.h"
#include "deepspeed/comm/background.h"

namespace deepspeed::comm {

/// One a group. Its operations start in the order of the calls, which must be the same on all ranks.
class DirectExchange {
 public:
  DirectExchange(c10::intrusive_ptr<c10d::Backend> backend, std::chrono::milliseconds timeout);

  /// Whether sums of this dtype are done here: floating types of 16, 32 and 64 bits.
  static bool can_sum(at::ScalarType type);

  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  // Tensors are dense, contiguous and on the CPU.
  WorkPtr all_reduce(const at::Tensor& tensor);
  /// owned: an interval of the tensor's elements a rank, without common elements. Afterwards each rank's
  /// interval holds the sum; the other elements are as before.
  WorkPtr reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned);
  /// output: (n), input: (size * n).
  WorkPtr reduce_scatter(const at::Tensor& output, const at::Tensor& input);
  /// output: (size * n), with this rank's block in place.
  WorkPtr all_gather(const at::Tensor& output);

 private:
  /// A tag that no operation under way has.
  int take_tag();

  c10::intrusive_ptr<c10d::Backend> backend_;
  std::chrono::milliseconds timeout_;
  BackgroundQueue queue_;
  int num_operations_ = 0;
};

}  // namespace deepspeed::comm
