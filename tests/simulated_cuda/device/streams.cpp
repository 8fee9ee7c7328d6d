#include "tests/simulated_cuda/device/streams.h"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include <unistd.h>

#include "tests/simulated_cuda/device/findings.h"
#include "tests/simulated_cuda/device/graphs.h"
#include "tests/simulated_cuda/device/host_copies.h"

namespace deepspeed::simulated {
namespace {

constexpr c10::StreamId kStreamsOfAPool = 32;

struct Streams {
  std::vector<Clock> clocks;
  std::vector<c10::Stream> streams;
  std::map<std::pair<int, c10::StreamId>, size_t> indices;
  Clock host;
  HostWaits waits;
  int64_t launches = 0;
  std::map<std::pair<int, bool>, c10::StreamId> given;  // by the pools of devices
  std::vector<int> used_devices;                        // by this process, the first one first
  pid_t process = 0;
};

Streams& all() {
  static auto* const made = new Streams;  // outlives all tensors
  return *made;
}

thread_local int thread_device = 0;  // threads begin on device 0, as CUDA's do
thread_local std::map<int, c10::Stream> thread_streams;

}  // namespace

std::recursive_mutex& device_mutex() {
  static auto* const made = new std::recursive_mutex;
  return *made;
}

int current_device() { return thread_device; }

void set_device(int index) {
  if (index < 0 || index >= kNumDevices)
    throw std::runtime_error("the simulated CUDA device has no such ordinal");
  thread_device = index;
}

c10::Device device_of(int index) {
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(index < 0 ? thread_device : index)};
}

c10::Stream current_stream(int device) {
  const c10::Device place = device_of(device);
  const auto found = thread_streams.find(place.index());
  return found != thread_streams.end() ? found->second : c10::Stream(c10::Stream::DEFAULT, place);
}

c10::Stream exchange_stream(c10::Stream stream) {
  const c10::Stream former = current_stream(stream.device_index());
  thread_streams.insert_or_assign(stream.device_index(), stream);
  return former;
}

c10::Stream next_stream(int device, bool is_high_priority) {
  const Lock lock(device_mutex());
  const c10::Device place = device_of(device);
  const c10::StreamId number = all().given[{place.index(), is_high_priority}]++ % kStreamsOfAPool;
  return c10::Stream(c10::Stream::UNSAFE, place, 1 + number + (is_high_priority ? kStreamsOfAPool : 0));
}

Clock clock_of(const c10::Stream& stream) {
  const Lock lock(device_mutex());
  Clock clock = all().clocks[index_of(stream)];
  clock.join(all().host);  // what the host knew when it recorded the event
  return clock;
}

void stream_waits(const c10::Stream& stream, const Clock& moment) {
  const Lock lock(device_mutex());
  clock_at(index_of(stream)).join(moment);
}

void host_waits(const Clock& moment, const std::string& why) {
  const Lock lock(device_mutex());
  if (!why.empty()) refuse_in_capture(why);
  if (!why.empty()) {
    HostWaits& waits = all().waits;
    const bool was_done = is_done(moment);
    ++(was_done ? waits.needless : waits.waits);
    waits.launches_before = all().launches;
    const std::string reason = why + (was_done ? ", for what it knows to be done" : "");
    const Stack stack = Stack::here();
    ++waits.places.try_emplace(reason + stack.key(), HostWaits::Place{reason, stack}).first->second.count;
  }
  all().host.join(moment);
  settle_known_copies();
}

void synchronize_device(int device, const std::string& why) {
  const Lock lock(device_mutex());
  note_use(device, why);
  Clock moment;
  for (size_t i = 0; i < all().streams.size(); ++i) {
    if (all().streams[i].device_index() == device) moment.join(all().clocks[i]);
  }
  host_waits(moment, why);
}

bool is_done(const Clock& moment) {
  const Lock lock(device_mutex());
  for (size_t i = 0; i < moment.ticks.size(); ++i) {
    if (all().host.of(i) < moment.ticks[i]) return false;
  }
  return true;
}

std::string HostWaits::text() const {
  std::string text;
  for (const auto& [key, place] : places)
    text += std::to_string(place.count) + " x " + place.why + "\n" + place.stack.text();
  return text;
}

HostWaits take_host_waits() {
  const Lock lock(device_mutex());
  return std::exchange(all().waits, {});
}

int64_t num_launches() {
  const Lock lock(device_mutex());
  return all().launches;
}

size_t index_of(const c10::Stream& stream) {
  Streams& s = all();
  const auto [found, is_new] = s.indices.try_emplace({stream.device_index(), stream.id()}, s.streams.size());
  if (is_new) {
    s.streams.push_back(stream);
    s.clocks.emplace_back();
  }
  return found->second;
}

Clock& clock_at(size_t stream) { return all().clocks[stream]; }
const Clock& host_clock() { return all().host; }

uint64_t begin_work(size_t stream, const char* name) {
  Streams& s = all();
  note_use(s.streams[stream].device_index(), name);
  ++s.launches;
  s.clocks[stream].join(s.host);
  return s.clocks[stream].tick(stream);
}

std::string name_of_stream(size_t stream) {
  const auto id = all().streams[stream].id();
  return id == 0 ? "the default stream" : "stream " + std::to_string(id);
}

bool is_used(int device) {
  const Lock lock(device_mutex());
  const Streams& s = all();
  return s.process == ::getpid() && std::ranges::find(s.used_devices, device) != s.used_devices.end();
}

void note_use(int device, const std::string& what) {
  const Lock lock(device_mutex());
  Streams& s = all();
  if (s.process != ::getpid()) {
    s.process = ::getpid();
    s.used_devices.clear();
  }
  if (std::ranges::find(s.used_devices, device) == s.used_devices.end()) s.used_devices.push_back(device);
  if (device == s.used_devices.front()) return;
  report("context " + what, "context: " + what + " on device " + std::to_string(device) +
                                " by a process of device " + std::to_string(s.used_devices.front()) + "\n" +
                                Stack::here().text());
}

}  // namespace deepspeed::simulated
