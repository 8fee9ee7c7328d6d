// This handle is a group of ranks and the collectives over it: a value over c10d::ProcessGroup, so that a
// group made by Python's torch.distributed is the same object. c10d's own headers stay in this folder's .cpp
// files.
//
// Every wait has a timeout; its error names rank, collective and group.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"

namespace c10d {
class ProcessGroup;
}
namespace deepspeed {
struct Interval;
}

namespace deepspeed::comm {

class CurrentValues;
struct Operation;

/// Says how elements are reduced. kAvg divides the sum by the number of ranks: floating types alone, 16-bit
/// ones are summed in fp32. The bitwise ones take integers, over Gloo alone.
enum class ReduceOp { kSum, kMax, kMin, kProduct, kAvg, kBand, kBor, kBxor };

/// Says where start_reduce_to_owners() puts this rank's sum, in place of its interval of the tensor:
/// `result`, of as many elements and that dtype, which must not overlap the tensor. The sum is multiplied by
/// `factor`, of the dtype, on the way; integers take 1 alone. Undefined: the sum stays in the tensor, as it
/// is.
struct OwnSum {
  at::Tensor result = {};
  double factor = 1.0;
};

/// Stands for a collective under way. Copies share it. The result may be read after wait() alone. Destroying
/// an unfinished Work neither waits nor throws.
class DEEPSPEED_API Work {
 public:
  class Impl;
  Work() = default;
  explicit Work(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  /// Blocks until the result is there (CUDA: until the current stream sees it). Throws CommError.
  void wait();
  /// Says whether the result is there, without waiting. A message over Gloo says so after wait() alone.
  bool is_completed() const;
  explicit operator bool() const { return impl_ != nullptr; }

 private:
  std::shared_ptr<Impl> impl_;
};

/// Runs collectives over a group. Ranks are those inside the group, 0 to size() - 1, unless a name says
/// "global". Tensors are dense and contiguous; collectives take any float or integer dtype (16-bit ones also
/// over Gloo). All ranks must call the same collectives in the same order; where they do not, the error names
/// two of them and what each called, within seconds.
class DEEPSPEED_API ProcessGroup {
 public:
  class Impl;
  ProcessGroup() = default;
  explicit ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  explicit operator bool() const { return impl_ != nullptr; }
  int rank() const;
  int size() const;
  const std::string& name() const;
  const std::string& backend() const;  // its name, as `dist_backend` says it; "fake" in a fake world
  /// Says where models of this group's ranks live. CPU tensors travel as well, whatever it is.
  at::DeviceType device_type() const;
  const std::vector<int>& global_ranks() const;
  std::chrono::milliseconds timeout() const;
  /// Returns what expires with the last handle.
  std::weak_ptr<void> lifetime() const { return impl_; }

  /// Returns this group for a caller whose ranks must be at one position, e.g. in the same micro step, when
  /// they meet in a collective: ranks that are not get an error that names both. `position` is read at each
  /// call.
  ProcessGroup at_position(std::shared_ptr<const std::atomic<int64_t>> position) const;
  /// Returns this group for a caller whose ranks must hold the same values when they meet in a collective,
  /// e.g. learning rates: ranks that do not get an error that names the value. `values` is read at each call.
  ProcessGroup holding(std::shared_ptr<const CurrentValues> values) const;

  /// Returns the group as c10d sees it (null for the fake backend).
  c10::intrusive_ptr<c10d::ProcessGroup> c10d_group() const;

  // These start an operation: the tensors must live, untouched, until the Work is done.
  Work start_all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  Work start_broadcast(const at::Tensor& tensor, int root) const;
  /// Gathers. output: (size * n), input: (n); input may be the view of output at this rank's place.
  Work start_all_gather(const at::Tensor& output, const at::Tensor& input) const;
  /// Reduces and leaves each rank its block. output: (n), input: (size * n).
  Work start_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                            ReduceOp op = ReduceOp::kSum) const;
  /// Exchanges blocks. output, input: (size * n); block i of input goes to rank i.
  Work start_all_to_all(const at::Tensor& output, const at::Tensor& input) const;
  Work start_barrier() const;
  // Messages between two ranks meet by their tag, from 0 to 2^30 - 1; NCCL ignores it.
  Work start_send(const at::Tensor& tensor, int destination, int tag = 0) const;
  Work start_recv(const at::Tensor& tensor, int source, int tag = 0) const;
  /// Sums into intervals. `owned` has an interval of the tensor's elements a rank, ascending, without common
  /// elements. Afterwards each rank's interval holds the sum over the ranks, or own.result has it; the other
  /// elements are unspecified.
  Work start_reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned,
                              const OwnSum& own = {}) const;

  // These return when the operation is done.
  void all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  void broadcast(const at::Tensor& tensor, int root) const;
  void all_gather(const at::Tensor& output, const at::Tensor& input) const;
  void reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op = ReduceOp::kSum) const;
  void reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned) const;
  void all_to_all(const at::Tensor& output, const at::Tensor& input) const;
  void send(const at::Tensor& tensor, int destination, int tag = 0) const;
  void recv(const at::Tensor& tensor, int source, int tag = 0) const;
  void barrier() const;
  /// Waits for all ranks, at most `timeout` (0: the group's). Throws CommError on every rank that came,
  /// naming the ranks that did not (the first of them, unless `wait_all_ranks`); the group stays usable. A
  /// rank that comes later gets an error too. Which barrier it is counts from the group's last collective.
  void monitored_barrier(std::chrono::milliseconds timeout = std::chrono::milliseconds(0),
                         bool wait_all_ranks = false) const;

  /// Throws CommError where the group has failed, as its next collective would. A device goes on where an
  /// operation of NCCL ends too late, with what memory holds: whoever has waited for the device asks here
  /// before using its results.
  void check() const;
  /// Blocks until the device has done what the group gave it, where nothing has failed. What is left after
  /// the group's timeout, or a minute, is given up where the group ends.
  void complete() const;
  /// Ends the group on all ranks: what is under way there and what comes fails with this reason, which names
  /// the rank. Waits for nobody.
  void give_up(const std::string& reason) const;

  /// Starts any of these, given as a value (operation.h), for what stands between a caller and a group.
  Work start(const Operation& operation) const;

  /// Returns one number of every rank, in rank order.
  std::vector<double> all_gather_scalar(double value) const;
  double all_reduce_scalar(double value, ReduceOp op = ReduceOp::kSum) const;
  /// Returns the `text` of rank `root` on every rank.
  std::string broadcast_text(const std::string& text, int root) const;
  /// Returns the texts of all ranks, in rank order.
  std::vector<std::string> all_gather_text(const std::string& text) const;

 private:
  std::shared_ptr<Impl> impl_;
  std::shared_ptr<const std::atomic<int64_t>> position_;
  std::shared_ptr<const CurrentValues> values_;
};

}  // namespace deepspeed::comm
