// What stands behind the handles ProcessGroup and Work. Internal to this folder: a backend derives from these
// two.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {

class Work::Impl {
 public:
  virtual ~Impl() = default;
  virtual void wait() = 0;
  virtual bool is_completed() const = 0;
};

/// A Work whose result is there already.
Work finished_work();

/// What every group knows about itself.
struct GroupDescription {
  std::string name;
  std::string backend;
  at::DeviceType device = at::kCPU;  // of the tensors that the backend is for
  int rank = 0;                      // inside the group
  std::vector<int> global_ranks;     // in group order; its length is the group's size
  std::chrono::milliseconds timeout{0};

  int size() const { return static_cast<int>(global_ranks.size()); }
};

/// Where the caller of a collective is (ProcessGroup::at_position(); -1: not told), and what it holds
/// (ProcessGroup::holding(); null: not told).
struct Caller {
  int64_t position = -1;
  std::shared_ptr<const HeldValues> held;
};

/// The arguments were checked by the handle: dense, contiguous, sizes and ranks that fit.
class ProcessGroup::Impl {
 public:
  explicit Impl(GroupDescription description) : description_(std::move(description)) {}
  virtual ~Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const GroupDescription& description() const { return description_; }
  /// Says whose call the next collective is that this thread starts.
  static void set_caller(Caller caller) { current_caller() = std::move(caller); }
  static const Caller& caller() { return current_caller(); }
  virtual c10::intrusive_ptr<c10d::ProcessGroup> c10d_group() const = 0;

  virtual Work start_all_reduce(const at::Tensor& tensor, ReduceOp op) = 0;
  virtual Work start_broadcast(const at::Tensor& tensor, int root) = 0;
  virtual Work start_all_gather(const at::Tensor& output, const at::Tensor& input) = 0;
  virtual Work start_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) = 0;
  virtual Work start_reduce_to_owners(const at::Tensor& tensor, const std::vector<Interval>& owned) = 0;
  virtual Work start_all_to_all(const at::Tensor& output, const at::Tensor& input) = 0;
  virtual Work start_send(const at::Tensor& tensor, int destination, int tag) = 0;
  virtual Work start_recv(const at::Tensor& tensor, int source, int tag) = 0;
  virtual Work start_barrier() = 0;
  virtual void monitored_barrier(std::chrono::milliseconds timeout, bool wait_all_ranks) = 0;

 private:
  // One a thread, since several may use a group at the same time.
  static Caller& current_caller() {
    thread_local Caller caller;
    return caller;
  }

  GroupDescription description_;
};

}  // namespace deepspeed::comm
