// How each collective is made from those of a backend: the one place that chooses. Internal to this folder.
//
// Gloo runs all ranks' operations over TCP, loopback on one machine. Its all-gather and reduce-scatter are
// slower than what its faster operations compose to; the numbers stand beside each choice
// (benchmarks/comm/collectives.cpp).
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "deepspeed/comm/process_group.h"

namespace deepspeed::comm {

/// Operations that were started, and what is left to do on this rank when all are done (may be empty).
struct Started {
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  std::function<void()> finish;
  bool on_stream = false;  // CUDA: waiting means that the current stream waits, the watchdog bounds the time
};

/// The elements of a contiguous tensor as bytes (shared memory): operations that only move data take any
/// dtype so.
at::Tensor bytes_of(const at::Tensor& tensor);

Started all_reduce_on(c10d::Backend& backend, const at::Tensor& tensor, ReduceOp op,
                      std::chrono::milliseconds timeout);
Started broadcast_on(c10d::Backend& backend, const at::Tensor& tensor, int root,
                     std::chrono::milliseconds timeout);
Started all_gather_on(c10d::Backend& backend, const at::Tensor& output, const at::Tensor& input,
                      std::chrono::milliseconds timeout);
Started reduce_scatter_on(c10d::Backend& backend, const at::Tensor& output, const at::Tensor& input,
                          ReduceOp op, std::chrono::milliseconds timeout);
Started all_to_all_on(c10d::Backend& backend, const at::Tensor& output, const at::Tensor& input,
                      std::chrono::milliseconds timeout);

}  // namespace deepspeed::comm
