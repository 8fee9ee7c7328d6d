// Defines a handle for a group of ranks and its collectives. It wraps c10d::ProcessGroup, so that a group
// made by Python's torch.distributed is the same object. This header includes no header of c10d.
//
// Every wait has a timeout, whose error names rank, collective and group.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/base/interval.h"

namespace c10d {
class ProcessGroup;
}

namespace deepspeed::comm {

class CurrentValues;
class GroupImpl;
class WorkImpl;
struct Operation;

/// Selects how elements are reduced. kAvg divides the sum by the number of ranks. It is only for floating
/// point types; 16-bit types are summed in fp32. Bitwise operations are only for integers on the CPU.
enum class ReduceOp { kSum, kMax, kMin, kProduct, kAvg, kBand, kBor, kBxor };

/// Redirects this rank's sum in start_reduce_to_owners() to `result` instead of its interval of the tensor.
/// `result` has the interval's size and dtype and must not overlap the tensor. The sum is multiplied by
/// `factor`, in that dtype; for integers `factor` must be 1. If `result` is undefined, the unscaled sum stays
/// in the tensor.
struct OwnSum {
  at::Tensor result = {};
  double factor = 1.0;
};

/// Represents a collective in progress. Copies share it. Read the result only after wait(). Destroying an
/// unfinished Work neither waits nor throws.
class DEEPSPEED_API Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<WorkImpl> impl) : impl_(std::move(impl)) {}

  /// Blocks until the result is there (on CUDA, until the current stream sees it). Throws CommError.
  void wait();
  /// Returns whether the communication is done, without waiting. The result is there only after wait(). For
  /// messages over Gloo this returns true only after wait().
  bool is_completed() const;
  explicit operator bool() const { return impl_ != nullptr; }

 private:
  std::shared_ptr<WorkImpl> impl_;
};

/// Runs collectives over a group. Ranks are those in the group, 0 to size() - 1, unless a name says "global".
/// Tensors are dense and contiguous. Collectives take any floating point or integer dtype, over Gloo too. All
/// ranks must call the same collectives in the same order. If they do not, an error within seconds names two
/// ranks and their calls.
class DEEPSPEED_API ProcessGroup {
 public:
  ProcessGroup() = default;
  explicit ProcessGroup(std::shared_ptr<GroupImpl> impl) : impl_(std::move(impl)) {}

  explicit operator bool() const { return impl_ != nullptr; }
  int rank() const;
  int size() const;
  const std::string& name() const;
  const std::string& backend() const;  // as in `dist_backend`; "fake" in a fake world
  /// Returns the type of the device that this group's backend is for. Collectives always take CPU tensors
  /// too.
  at::DeviceType device_type() const;
  const std::vector<int>& global_ranks() const;
  std::chrono::milliseconds timeout() const;
  /// Returns a pointer that expires with the last handle to this group.
  std::weak_ptr<void> lifetime() const { return impl_; }

  /// Returns a handle to this group that also compares the callers' positions in each collective. A position
  /// is, for example, the micro step. Ranks at different positions get an error that names both. `position`
  /// is read at each call.
  ProcessGroup at_position(std::shared_ptr<const std::atomic<int64_t>> position) const;
  /// Returns a handle to this group that also compares the callers' values in each collective. Values are,
  /// for example, learning rates. Ranks with different values get an error that names the value. `values` is
  /// read at each call.
  ProcessGroup holding(std::shared_ptr<const CurrentValues> values) const;

  /// Returns c10d's group (null for the fake backend).
  c10::intrusive_ptr<c10d::ProcessGroup> c10d_group() const;

  // These start an operation. The tensors must stay alive and unchanged until the Work is done.
  Work start_all_reduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) const;
  Work start_broadcast(const at::Tensor& tensor, int root) const;
  /// Gathers `input`, (n), of all ranks into `output`, (size * n). `input` may be this rank's block of
  /// `output`.
  Work start_all_gather(const at::Tensor& output, const at::Tensor& input) const;
  /// Reduces `input`, (size * n), over the ranks. Block r of the result goes to rank r's `output`, (n).
  Work start_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                            ReduceOp op = ReduceOp::kSum) const;
  /// Exchanges blocks. `output` and `input` are (size * n). Block i of `input` goes to rank i; block i of
  /// `output` comes from it.
  Work start_all_to_all(const at::Tensor& output, const at::Tensor& input) const;
  Work start_barrier() const;
  // Messages between two ranks are matched by tag, from 0 to 2^30 - 1; NCCL ignores tags.
  Work start_send(const at::Tensor& tensor, int destination, int tag = 0) const;
  Work start_recv(const at::Tensor& tensor, int source, int tag = 0) const;
  /// Sums intervals of the tensor, one per rank, over the ranks. `owned` lists them in elements of the
  /// flattened tensor, ascending and disjoint. Afterwards each rank's interval, or own.result, holds its sum.
  /// Other elements are unspecified.
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
  /// Waits for all ranks, for at most `timeout` (0: the group's). Throws CommError on every rank that came,
  /// naming the first missing rank, or all with `wait_all_ranks`. The group stays usable. A rank that comes
  /// later also gets an error. Ranks match their barriers by number, counted since the group's last
  /// collective.
  void monitored_barrier(std::chrono::milliseconds timeout = std::chrono::milliseconds(0),
                         bool wait_all_ranks = false) const;

  /// Throws CommError if the group has failed, as its next collective would. If an NCCL operation times out,
  /// the device continues with whatever is in memory. Call this after waiting for the device and before using
  /// its results.
  void check() const;
  /// Blocks until the device has done the group's work, if nothing has failed. It waits for at most the
  /// group's timeout, or a minute if that is shorter. Work that remains is aborted when the group ends.
  void complete() const;
  /// Ends the group on all ranks. Current and later calls fail with this reason, which should name this rank.
  /// Does not wait.
  void give_up(const std::string& reason) const;

  /// Starts any of these operations, given as a value (operation.h).
  Work start(const Operation& operation) const;

  /// Returns one number per rank, in rank order.
  std::vector<double> all_gather_scalar(double value) const;
  double all_reduce_scalar(double value, ReduceOp op = ReduceOp::kSum) const;
  /// Returns rank `root`'s `text` on every rank.
  std::string broadcast_text(const std::string& text, int root) const;
  /// Returns the texts of all ranks, in rank order.
  std::vector<std::string> all_gather_text(const std::string& text) const;

 private:
  std::shared_ptr<GroupImpl> impl_;
  std::shared_ptr<const std::atomic<int64_t>> position_;
  std::shared_ptr<const CurrentValues> values_;
};

}  // namespace deepspeed::comm
