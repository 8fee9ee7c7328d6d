// CUDA graphs: work that is captured, and done when it is replayed.
//
// The operators run during the capture too, since the sizes of their results are wanted; afterwards what they
// wrote is as it was before. Memory that is made during the capture belongs to the graph's pool, and holds
// poison before the first replay. What a real capture refuses is an error, or a finding, here.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "tests/simulated_cuda/device/blocks.h"
#include "tests/simulated_cuda/device/memory.h"

namespace deepspeed::simulated {

/// Memory that graphs made while they were captured.
struct GraphPool {
  ~GraphPool();
  std::vector<std::unique_ptr<Block>> freed;
  bool is_fresh = true;  // nothing was replayed
};

class Graph {
 public:
  /// Begins to capture the current stream. Throws c10::Error for the default stream, and beside another
  /// capture.
  explicit Graph(const Graph* neighbour);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void end();
  void replay();

  // --- for the files of this folder, under the lock

  /// The graph that is being captured, or null.
  static Graph* current();
  c10::Stream stream() const { return stream_; }
  const std::shared_ptr<GraphPool>& pool() const { return pool_; }
  /// Takes work of a stream; one that is not the captured one is a finding.
  void take(const char* name, const c10::Stream& stream, const std::vector<Use>& uses);
  /// Says how to do again the work that was taken last, on the bytes of the device.
  void add_work(std::function<void()> work) { works_.push_back(std::move(work)); }

 private:
  void keep_content(const Use& use);

  c10::Stream stream_;
  std::shared_ptr<GraphPool> pool_;
  std::vector<Use> uses_;
  std::vector<std::function<void()>> works_;
  std::map<const void*, std::vector<char>> contents_;  // of blocks from before, by their addresses
  at::Tensor numbers_;                                 // the generator's state before the capture
  bool is_ended_ = false;
};

/// Throws c10::Error while a stream is captured: `what` is not allowed then.
void refuse_in_capture(const std::string& what);
/// In a capture, how to do the work again that was launched last.
void repeat_in_graph(std::function<void()> work);

}  // namespace deepspeed::simulated
