// Makes each collective from those of a backend: this is the one place that chooses. Internal to this folder.
//
// Gloo runs all ranks' operations over TCP, loopback on one machine. Sums and gathers of tensors are slower
// in its own collectives than as sends and receives between every two ranks (direct_exchange.h); the numbers
// stand beside each choice (benchmarks/comm/collectives.cpp).
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "deepspeed/comm/backends/direct_exchange.h"
#include "deepspeed/comm/group/operation.h"

namespace deepspeed::comm {

/// Holds operations that were started, and what is left to do on this rank when all are done (may be empty).
struct Started {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  std::function<void()> finish;
  bool on_stream = false;  // CUDA: waiting means that the current stream waits, the watchdog bounds the time
};

/// Says what a group offers for its tensors.
struct Route {
  c10d::Backend& backend;
  DirectExchange* direct;  // null: the backend does everything
  int tag;                 // of the operation, for `direct`
  std::chrono::milliseconds timeout;
};

/// Returns the elements of a contiguous tensor as bytes (shared memory): operations that only move data take
/// any dtype so.
at::Tensor bytes_of(const at::Tensor& tensor);

/// Starts what the backend does for the operation.
Started start_on(const Route& route, const Operation& operation);

}  // namespace deepspeed::comm
