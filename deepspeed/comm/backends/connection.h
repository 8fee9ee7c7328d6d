// Holds the connections of a group's ranks, and faster collectives than c10d's over them. Internal to this
// folder.
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
  /// Takes a group that is connected over `backend`. Operations fail after `timeout`.
  Connection(const Backend& backend, c10::intrusive_ptr<c10d::ProcessGroup> group,
             std::chrono::milliseconds timeout);

  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d_group() const { return group_; }
  /// Starts the operation in the fastest way for tensors of `device`. `call` is the number and hash of a
  /// collective in its group's history. Over Gloo, operations whose `call` differs between ranks never match,
  /// and so never finish.
  Started start(const Operation& operation, at::DeviceType device, CallHistory::Progress call);
  /// Returns how an operation of the device has failed, or "". A failure may show only after the wait for the
  /// operation.
  std::string failure_of_device() const;
  /// Ends the connections of a group whose device has finished all its work.
  void shutdown();
  /// Makes current and later operations fail. Does not wait.
  void abort();
  /// Moves the c10d group out. The group's destructor may wait for aborted operations, so the caller may want
  /// to run it in a thread of its own.
  c10::intrusive_ptr<c10d::ProcessGroup> release() { return std::move(group_); }

 private:
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::chrono::milliseconds timeout_;
  // If both are null, the backend also does everything for CPU tensors.
  std::unique_ptr<DirectExchange> direct_;
  SharedExchange* shared_ = nullptr;  // of the backend that group_ holds
};

}  // namespace deepspeed::comm
