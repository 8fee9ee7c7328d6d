// What LibTorch asks of a device besides its operators: its guard, events, hooks and allocator.
#include <string>

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "tests/simulated_cuda/device/findings.h"
#include "tests/simulated_cuda/device/generator.h"
#include "tests/simulated_cuda/device/graphs.h"
#include "tests/simulated_cuda/device/memory.h"
#include "tests/simulated_cuda/device/streams.h"

namespace deepspeed::simulated {
namespace {

struct Event {
  Clock moment;
  int num_queries = 0;
  const Graph* graph = nullptr;  // in whose capture it was recorded, on its stream
};

/// A stream that waits for an event of a capture becomes a part of it, and a captured one may wait for no
/// other.
void check_wait(const Event& event, const c10::Stream& stream) {
  const Graph* const graph = Graph::current();
  if (graph == nullptr || (event.graph == graph) == (stream == graph->stream())) return;
  const bool is_drawn_in = event.graph == graph;
  report(is_drawn_in ? "capture draws in" : "capture waits",
         std::string("capture: ") +
             (is_drawn_in ? "another stream waits for an event of the captured one\n"
                          : "the captured stream waits for an event from before\n") +
             Stack::here().text());
}

class GuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device former = getDevice();
    setDevice(device);
    return former;
  }
  c10::Device getDevice() const override { return device_of(current_device()); }
  void setDevice(c10::Device device) const override {
    if (device.index() >= 0) set_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < kNumDevices) set_device(device.index());
  }
  c10::Stream getStream(c10::Device device) const override { return current_stream(device.index()); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device_of(device.index()));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool is_high_priority) const override {
    return next_stream(device.index(), is_high_priority);
  }
  c10::Stream getNewStream(c10::Device device, int) const override { return next_stream(device.index()); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    const Graph* const graph = Graph::current();
    *static_cast<Event*>(*event) = {clock_of(stream), 0,
                                    graph != nullptr && graph->stream() == stream ? graph : nullptr};
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    check_wait(*static_cast<Event*>(event), stream);
    stream_waits(stream, static_cast<Event*>(event)->moment);
  }
  // The answer "yes" is a wait that took no time. Whoever asks again and again gets it.
  bool queryEvent(void* event) const override {
    auto* const asked = static_cast<Event*>(event);
    if (asked == nullptr || is_done(asked->moment)) return true;
    if (++asked->num_queries < 3) return false;
    host_waits(asked->moment, "");
    return true;
  }
  bool queryStream(const c10::Stream& stream) const override { return is_done(clock_of(stream)); }
  void synchronizeStream(const c10::Stream& stream) const override {
    host_waits(clock_of(stream), "a stream");
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) host_waits(static_cast<Event*>(event)->moment, "an event");
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    synchronize_device(index, "the device");
  }
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override { return 0.001; }

  c10::DeviceIndex deviceCount() const noexcept override { return kNumDevices; }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_stream(data.get(), stream);
  }
};

C10_REGISTER_GUARD_IMPL(CUDA, GuardImpl)

const bool has_allocator = [] {
  c10::SetAllocator(c10::kCUDA, device_allocator(), /*priority=*/10);
  return true;
}();

}  // namespace
}  // namespace deepspeed::simulated

namespace at {

/// Registered under the name that torch looks for.
struct CUDAHooks final : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  const Generator& getDefaultGenerator(DeviceIndex device) const override {
    return deepspeed::simulated::default_generator(device);
  }
  Generator getNewGenerator(DeviceIndex device) const override {
    return deepspeed::simulated::make_generator(device);
  }
  bool isPinnedPtr(const void* data) const override { return deepspeed::simulated::is_pinned(data); }
  bool hasCUDA() const override { return true; }
  bool hasCUDART() const override { return true; }
  bool hasPrimaryContext(DeviceIndex device) const override { return deepspeed::simulated::is_used(device); }
  Allocator* getPinnedMemoryAllocator() const override { return deepspeed::simulated::pinned_allocator(); }
  Allocator* getCUDADeviceAllocator() const override { return deepspeed::simulated::device_allocator(); }
  std::string showConfig() const override { return "simulated"; }
  int getNumGPUs() const override { return deepspeed::simulated::kNumDevices; }
  void deviceSynchronize(DeviceIndex device) const override {
    deepspeed::simulated::synchronize_device(device, "the device");
  }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  DeviceIndex deviceCount() const override { return deepspeed::simulated::kNumDevices; }
  DeviceIndex current_device() const override { return getCurrentDevice(); }
  void setCurrentDevice(DeviceIndex device) const override { deepspeed::simulated::set_device(device); }
  DeviceIndex getCurrentDevice() const override {
    return static_cast<DeviceIndex>(deepspeed::simulated::current_device());
  }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const DeviceIndex former = getCurrentDevice();
    deepspeed::simulated::set_device(device);
    return former;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
};

using at::CUDAHooksRegistry;
REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace at
