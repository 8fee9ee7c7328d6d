#include "tests/null_gpu/runtime/streams.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tests/null_gpu/runtime/counts.h"
#include "tests/null_gpu/runtime/hooks.h"

namespace null_gpu {
namespace {

struct Registry {
  std::recursive_mutex captures_mutex;
  std::set<std::shared_ptr<Capture>> captures;  // under way
  std::mutex mutex;                             // of what follows
  std::set<Stream*> streams;
  std::map<int, std::unique_ptr<Stream>> default_streams;
};

Registry& registry() {
  static auto* const made = new Registry;  // outlives the threads of streams
  return *made;
}

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

Event& event_of(cudaEvent_t event) { return *reinterpret_cast<Event*>(event); }

cudaError_t invalidate(Capture& capture, cudaError_t error) {
  capture.is_invalid = true;
  return note(error);
}

cudaError_t record(Event& event, Stream& stream) {
  const std::lock_guard lock(captures_mutex());
  event.capture = stream.capture();
  event.stream = &stream;
  event.moment = event.capture ? nullptr : stream.now();
  return event.capture && event.capture->is_invalid ? note(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}

// A capture that has ended holds nothing up.
bool is_under_way(const std::shared_ptr<Capture>& capture) { return registry().captures.contains(capture); }

cudaError_t wait_in_capture(Stream& stream, const Event& event) {
  const auto& capture = event.capture;
  if (!stream.capture()) {
    stream.set_capture(capture);
    capture->streams.insert(&stream);
  }
  if (stream.capture() != capture) return invalidate(*capture, cudaErrorStreamCaptureMerge);
  if (&stream == capture->origin) {
    capture->unjoined.erase(event.stream);
  } else {
    capture->unjoined.insert(&stream);
  }
  return capture->is_invalid ? note(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}

}  // namespace

std::recursive_mutex& captures_mutex() { return registry().captures_mutex; }

void Moment::pass() {
  const std::lock_guard lock(mutex_);
  has_passed_ = true;
  time_ = std::chrono::steady_clock::now();
  passed_.notify_all();
}

bool Moment::has_passed() const {
  const std::lock_guard lock(mutex_);
  return has_passed_;
}

void Moment::wait() const {
  std::unique_lock lock(mutex_);
  passed_.wait(lock, [&] { return has_passed_; });
}

cudaError_t Stream::give(Work work, bool may_block) {
  {
    const std::lock_guard lock(captures_mutex());
    if (capture_) {
      if (capture_->is_invalid) return note(cudaErrorStreamCaptureInvalidated);
      capture_->work.push_back(std::move(work));
      if (this != capture_->origin) capture_->unjoined.insert(this);
      return cudaSuccess;
    }
  }
  const std::lock_guard lock(mutex_);
  if (!may_block && queue_.empty() && !is_working_) {
    work();
    return cudaSuccess;
  }
  queue_.push_back(std::move(work));
  if (!std::exchange(has_thread_, true)) std::thread(&Stream::do_work, this).detach();
  has_work_.notify_one();
  return cudaSuccess;
}

void Stream::do_work() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_work_.wait(lock, [&] { return !queue_.empty(); });
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    is_working_ = true;
    lock.unlock();
    work();
    lock.lock();
    is_working_ = false;
  }
}

std::shared_ptr<Moment> Stream::now() {
  auto moment = std::make_shared<Moment>();
  const std::lock_guard lock(mutex_);
  if (queue_.empty() && !is_working_) {
    moment->pass();
  } else {
    queue_.push_back([moment] { moment->pass(); });
  }
  return moment;
}

bool Stream::is_idle() {
  const std::lock_guard lock(mutex_);
  return queue_.empty() && !is_working_;
}

Stream& stream_of(cudaStream_t stream) {
  if (stream != nullptr && stream != cudaStreamLegacy && stream != cudaStreamPerThread)
    return *reinterpret_cast<Stream*>(stream);
  const std::lock_guard lock(registry().mutex);
  auto& of_device = registry().default_streams[current_device()];
  if (!of_device) of_device = std::make_unique<Stream>(current_device());
  return *of_device;
}

void for_each_stream(int device, const std::function<void(Stream&)>& visit) {
  std::vector<Stream*> streams;
  {
    const std::lock_guard lock(registry().mutex);
    for (Stream* const stream : registry().streams)
      if (stream->device() == device) streams.push_back(stream);
    if (const auto& of_device = registry().default_streams[device]) streams.push_back(of_device.get());
  }
  for (Stream* const stream : streams) visit(*stream);
}

void synchronize(int device) {
  for_each_stream(device, [](Stream& stream) { stream.wait(); });
}

cudaError_t refuse_beside_capture() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  const std::lock_guard lock(captures_mutex());
  for (const auto& capture : registry().captures) {
    const bool is_of_thread = capture->thread == std::this_thread::get_id();
    if (capture->mode == cudaStreamCaptureModeGlobal ||
        (capture->mode == cudaStreamCaptureModeThreadLocal && is_of_thread))
      return invalidate(*capture, cudaErrorStreamCaptureUnsupported);
  }
  return cudaSuccess;
}

cudaError_t give_blocking_work(cudaStream_t stream, std::function<void()> work) {
  return stream_of(stream).give(std::move(work), /*may_block=*/true);
}

}  // namespace null_gpu

using namespace null_gpu;

extern "C" {

void null_gpu_delay(cudaStream_t stream, int milliseconds) {
  stream_of(stream).give([=] { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }, true);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  use_device();
  auto* const made = new Stream(current_device(), priority);
  const std::lock_guard lock(registry().mutex);
  registry().streams.insert(made);
  *stream = reinterpret_cast<cudaStream_t>(made);
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }  // its thread may still be at work

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  count("host waits: cudaStreamSynchronize");
  Stream& stream = stream_of(handle);
  {
    const std::lock_guard lock(captures_mutex());
    if (stream.capture()) return invalidate(*stream.capture(), cudaErrorStreamCaptureUnsupported);
  }
  stream.wait();
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  Stream& stream = stream_of(handle);
  {
    const std::lock_guard lock(captures_mutex());
    if (stream.capture()) return invalidate(*stream.capture(), cudaErrorStreamCaptureUnsupported);
  }
  return stream.is_idle() ? cudaSuccess : note(cudaErrorNotReady);
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = stream_of(stream).priority();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  count("stream waits");
  const Event& event = event_of(event_handle);
  Stream& stream = stream_of(handle);
  std::shared_ptr<Moment> moment;
  {
    const std::lock_guard lock(captures_mutex());
    if (event.capture && is_under_way(event.capture)) return wait_in_capture(stream, event);
    if (!event.moment) return cudaSuccess;
    if (stream.capture()) return invalidate(*stream.capture(), cudaErrorStreamCaptureIsolation);
    moment = event.moment;
  }
  if (moment->has_passed()) return cudaSuccess;
  return stream.give([moment] { moment->wait(); }, /*may_block=*/true);
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t call, void* data, unsigned) {
  return stream_of(stream).give([=] { call(stream, cudaSuccess, data); }, true);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void* data) {
  return stream_of(stream).give([=] { call(data); }, true);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  count("captures");
  const std::lock_guard lock(captures_mutex());
  Stream& stream = stream_of(handle);
  if (handle == nullptr) return note(cudaErrorStreamCaptureUnsupported);
  if (stream.capture()) return note(cudaErrorIllegalState);
  static uint64_t next_id = 1;
  auto capture = std::make_shared<Capture>();
  capture->id = next_id++;
  capture->origin = &stream;
  capture->thread = std::this_thread::get_id();
  capture->mode = mode;
  registry().captures.insert(capture);
  stream.set_capture(std::move(capture));
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  const std::lock_guard lock(captures_mutex());
  Stream& stream = stream_of(handle);
  const std::shared_ptr<Capture> capture = stream.capture();
  if (!capture) return note(cudaErrorIllegalState);
  if (&stream != capture->origin) return invalidate(*capture, cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return invalidate(*capture, cudaErrorStreamCaptureWrongThread);
  registry().captures.erase(capture);
  stream.set_capture(nullptr);
  for (Stream* const drawn : capture->streams) drawn->set_capture(nullptr);
  if (capture->is_invalid) return note(cudaErrorStreamCaptureInvalidated);
  if (!capture->unjoined.empty()) return note(cudaErrorStreamCaptureUnjoined);
  *graph = reinterpret_cast<cudaGraph_t>(new std::vector<Work>(capture->work));
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const std::lock_guard lock(captures_mutex());
  const auto& capture = stream_of(handle).capture();
  *status = !capture              ? cudaStreamCaptureStatusNone
            : capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     size_t* num_nodes) {
  const std::lock_guard lock(captures_mutex());
  const auto& capture = stream_of(stream).capture();
  if (id != nullptr && capture) *id = capture->id;
  if (graph != nullptr) *graph = nullptr;
  if (nodes != nullptr) *nodes = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (num_nodes != nullptr) *num_nodes = 0;
  return cudaStreamIsCapturing(stream, status);
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  use_device();
  *event = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &event_of(event);
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  count("events recorded");
  return record(event_of(event), stream_of(stream));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  if (const auto error = refuse_beside_capture()) return error;
  const std::lock_guard lock(captures_mutex());
  const Event& event = event_of(handle);
  if (event.capture && is_under_way(event.capture)) return invalidate(*event.capture, cudaErrorCapturedEvent);
  return event.moment && !event.moment->has_passed() ? note(cudaErrorNotReady) : cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  count("host waits: cudaEventSynchronize");
  std::shared_ptr<Moment> moment;
  {
    const std::lock_guard lock(captures_mutex());
    const Event& event = event_of(handle);
    if (event.capture && is_under_way(event.capture))
      return invalidate(*event.capture, cudaErrorCapturedEvent);
    moment = event.moment;
  }
  if (moment) moment->wait();
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const auto &from = event_of(begin).moment, &to = event_of(end).moment;
  if (!from || !to) return note(cudaErrorInvalidResourceHandle);
  if (!from->has_passed() || !to->has_passed()) return note(cudaErrorNotReady);
  *milliseconds =
      std::max(std::chrono::duration<float, std::milli>(to->time() - from->time()).count(), 0.0005F);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made =
      reinterpret_cast<cudaGraphExec_t>(new std::vector<Work>(*reinterpret_cast<std::vector<Work>*>(graph)));
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  count("graph launches");
  const auto work = *reinterpret_cast<std::vector<Work>*>(graph);
  return stream_of(stream).give(
      [work] {
        for (const Work& each : work) each();
      },
      /*may_block=*/true);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<std::vector<Work>*>(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete reinterpret_cast<std::vector<Work>*>(graph);
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, size_t* number) {
  *number = reinterpret_cast<std::vector<Work>*>(graph)->size();
  return cudaSuccess;
}
}
