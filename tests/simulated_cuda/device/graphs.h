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
#include <thread>
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

  /// Ends the capture. Throws c10::Error where something in it was refused.
  void end();
  void replay();

  // --- for the files of this folder, under the lock

  /// The graph whose capture this thread is in, or null: it has begun it, or runs a backward.
  static Graph* current();
  /// Finds work that another thread gives to the stream that is captured.
  static void check_stream(const char* name, const c10::Stream& stream);
  c10::Stream stream() const { return stream_; }
  const std::shared_ptr<GraphPool>& pool() const { return pool_; }
  /// Takes work of a stream; one that is not the captured one is a finding.
  void take(const char* name, const c10::Stream& stream, const std::vector<Use>& uses);
  /// Says how to do again the work that was taken last, on the bytes of the device.
  void add_work(std::function<void()> work) { works_.push_back(std::move(work)); }

 private:
  bool is_here() const;
  void keep_content(const Use& use);

  c10::Stream stream_;
  std::shared_ptr<GraphPool> pool_;
  std::vector<Use> uses_;
  std::vector<std::function<void()>> works_;
  std::map<const void*, std::vector<char>> contents_;    // of blocks from before, by their addresses
  at::Tensor numbers_;                                   // the generator's state before the capture
  std::thread::id thread_ = std::this_thread::get_id();  // that began it
  bool is_ended_ = false, is_broken_ = false;

  friend void refuse_in_capture(const std::string& what);
};

/// Throws c10::Error where a capture was left without an end: the generator would belong to it still.
void refuse_after_left_capture();
/// Throws c10::Error while a stream is captured: `what` is not allowed then.
void refuse_in_capture(const std::string& what);
/// In a capture, how to do the work again that was launched last.
void repeat_in_graph(std::function<void()> work);

}  // namespace deepspeed::simulated
