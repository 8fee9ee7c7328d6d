// The connections of a group's ranks, with what is faster than c10d's own collectives over them. Internal to
// this folder.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "deepspeed/comm/backends/collectives.h"
#include "deepspeed/comm/backends/shm/shared_exchange.h"
#include "deepspeed/comm/backends/table.h"
#include "deepspeed/comm/watch/call_history.h"

namespace deepspeed::comm {

class Connection {
 public:
  /// Takes a group that is connected over `backend`. Operations end after `timeout`.
  Connection(const Backend& backend, c10::intrusive_ptr<c10d::ProcessGroup> group,
             std::chrono::milliseconds timeout);

  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d_group() const { return group_; }
  /// Starts the operation by the way that there is for tensors of `device`. call: the number and the chain of
  /// a collective in its group's history; ranks whose calls differ do not meet over Gloo.
  Started start(const Operation& operation, at::DeviceType device, CallHistory::Progress call);
  /// Returns how the device's backend has failed, which it may notice after the wait for an operation; "": it
  /// has not.
  std::string failure_of_device() const;
  /// Ends the connections of a group whose device has done all that it was given.
  void shutdown();
  /// Ends what is under way, and what comes, with an error. Waits for nobody.
  void abort();
  /// Gives the c10d group away, whose destructor may wait for operations that were aborted.
  c10::intrusive_ptr<c10d::ProcessGroup> release() { return std::move(group_); }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::chrono::milliseconds timeout_;
  // Where both are null, the backend does everything for CPU tensors, too.
  std::unique_ptr<DirectExchange> direct_;
  SharedExchange* shared_ = nullptr;  // of the backend that group_ holds
};

}  // namespace deepspeed::comm
