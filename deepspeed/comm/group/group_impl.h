// Defines the implementations behind ProcessGroup and Work, from which backends derive. Internal to this
// folder.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/held_values.h"

namespace c10d {
class ProcessGroup;
}

namespace deepspeed::comm {

class Work;
struct Operation;

class WorkImpl {
 public:
  virtual ~WorkImpl() = default;
  virtual void wait() = 0;
  virtual bool is_completed() const = 0;
};

/// Describes an operation that was complete when it was started.
class FinishedWork : public WorkImpl {
 public:
  void wait() override {}
  bool is_completed() const override { return true; }
};

/// Describes a group: name, backend, ranks and timeout.
struct GroupDescription {
  std::string name;
  std::string backend;
  at::DeviceType device = at::kCPU;  // of the tensors that the backend is for
  int rank = 0;                      // in the group
  std::vector<int> global_ranks;     // in group order, one per rank
  std::chrono::milliseconds timeout{0};

  int size() const { return static_cast<int>(global_ranks.size()); }
};

/// Describes the caller of a collective, for comparison between ranks. `position` is the value given to
/// ProcessGroup::at_position(), -1 if unknown. `held` are the values given to holding(), null if unknown.
struct Caller {
  int64_t position = -1;
  std::shared_ptr<const HeldValues> held;
};

class GroupImpl {
 public:
  explicit GroupImpl(GroupDescription description) : description_(std::move(description)) {}
  virtual ~GroupImpl() = default;
  GroupImpl(const GroupImpl&) = delete;
  GroupImpl& operator=(const GroupImpl&) = delete;

  const GroupDescription& description() const { return description_; }
  virtual c10::intrusive_ptr<c10d::ProcessGroup> c10d_group() const = 0;
  /// Starts an operation. ProcessGroup has checked the arguments: tensors are dense, contiguous and not
  /// empty, and sizes and ranks fit.
  virtual Work start(const Operation& operation, const Caller& caller) = 0;
  /// Throws if the group has failed (ProcessGroup::check()).
  virtual void check() {}
  /// Waits for the device (ProcessGroup::complete()).
  virtual void complete() {}
  /// Makes the group unusable on all ranks (ProcessGroup::give_up()). The default, for
  /// groups of one rank, does nothing.
  virtual void give_up(const std::string& reason) { static_cast<void>(reason); }

 private:
  GroupDescription description_;
};

}  // namespace deepspeed::comm
