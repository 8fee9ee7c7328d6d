// Implements each collective by operations of a backend, or by direct exchange; only this file chooses.
// Internal to this folder.
//
// Gloo runs everything over TCP, on one machine over loopback. Its own sums and gathers are slower than sends
// and receives between every two ranks (direct_exchange.h). benchmarks/comm/collectives.cpp measures the
// collectives.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "deepspeed/comm/backends/direct_exchange.h"
#include "deepspeed/comm/group/operation.h"

namespace deepspeed::comm {

/// Holds started operations, and this rank's work after them (may be empty).
struct Started {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  std::function<void()> finish;
  bool on_stream = false;  // CUDA: only the current stream waits, and the watchdog limits the time
};

/// Holds the means by which a group runs an operation.
struct Route {
  c10d::Backend& backend;
  DirectExchange* direct;  // null: the backend does everything
  int tag;                 // of the operation, for `direct`
  std::chrono::milliseconds timeout;
};

/// Starts the operation on the backend, or by direct exchange if that is faster.
Started start_on(const Route& route, const Operation& operation);

}  // namespace deepspeed::comm
