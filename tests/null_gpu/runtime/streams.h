// Streams, events and captures, with the order and the states that CUDA gives them.
//
// Work of an idle stream is done at once, by the thread that gives it. Only work that may wait, a collective
// or an event of a busy stream, makes a stream busy: a thread of its own then does what it is given, in
// order.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

namespace null_gpu {

using Work = std::function<void()>;
class Stream;

/// What is captured instead of done. All fields are under captures_mutex().
struct Capture {
  uint64_t id = 0;
  Stream* origin = nullptr;
  std::thread::id thread;  // that began it
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  bool is_invalid = false;
  std::vector<Work> work;
  std::set<Stream*> streams;   // that were drawn in, the origin not among them
  std::set<Stream*> unjoined;  // those of them whose work the origin does not wait for yet
};

std::recursive_mutex& captures_mutex();

/// A point in a stream's work.
class Moment {
 public:
  void pass();
  bool has_passed() const;
  void wait() const;
  std::chrono::steady_clock::time_point time() const { return time_; }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable passed_;
  bool has_passed_ = false;
  std::chrono::steady_clock::time_point time_;
};

class Stream {
 public:
  explicit Stream(int device, int priority = 0) : device_(device), priority_(priority) {}

  /// Gives the stream work, or its capture. may_block: it is left to the stream's thread.
  cudaError_t give(Work work, bool may_block = false);
  /// Returns a moment behind all work so far.
  std::shared_ptr<Moment> now();
  bool is_idle();
  void wait() { now()->wait(); }

  int device() const { return device_; }
  int priority() const { return priority_; }
  const std::shared_ptr<Capture>& capture() const { return capture_; }  // under captures_mutex()
  void set_capture(std::shared_ptr<Capture> capture) { capture_ = std::move(capture); }

 private:
  void do_work();

  const int device_, priority_;
  std::shared_ptr<Capture> capture_;
  std::mutex mutex_;
  std::condition_variable has_work_;
  std::deque<Work> queue_;
  bool is_working_ = false, has_thread_ = false;
};

struct Event {
  std::shared_ptr<Moment> moment;    // null: never recorded, or captured
  std::shared_ptr<Capture> capture;  // that it was recorded in
  Stream* stream = nullptr;          // that it was recorded in last
};

Stream& stream_of(cudaStream_t stream);
void for_each_stream(int device, const std::function<void(Stream&)>& visit);
void synchronize(int device);

/// Sets the thread's last error where there is one, and returns it.
cudaError_t note(cudaError_t error);
/// Returns an error, and makes a capture invalid, where a call of this thread is not allowed beside it.
cudaError_t refuse_beside_capture();
/// The thread's current device.
int current_device();
/// Notes that the process uses the current device.
void use_device();

}  // namespace null_gpu
