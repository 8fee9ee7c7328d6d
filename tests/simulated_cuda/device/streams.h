// Devices, their streams, and the order of what runs there.
//
// Work is executed at once, by the thread that launches it; what is simulated is what a program may rely on.
// Every stream and the host have a clock. A launch ticks its stream's clock, an event is a copy of a clock, a
// wait joins clocks. The host is one actor: races between its threads are ThreadSanitizer's work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include <c10/core/Stream.h>

#include "tests/simulated_cuda/device/clock.h"
#include "tests/simulated_cuda/device/stack.h"

namespace deepspeed::simulated {

constexpr int kNumDevices = 4;

int current_device();
void set_device(int index);
c10::Device device_of(int index);
/// Returns the thread's current stream of a device.
c10::Stream current_stream(int device);
/// Makes a stream the current one of its device, and returns the former one.
c10::Stream exchange_stream(c10::Stream stream);
/// Returns the next stream of a pool: as CUDA's, that of each priority hands 32 streams out in turn.
c10::Stream next_stream(int device, bool is_high_priority = false);

/// Returns what an event recorded now stands for.
Clock clock_of(const c10::Stream& stream);
void stream_waits(const c10::Stream& stream, const Clock& moment);
/// Makes the host wait. why: for the count of such waits; "": it is not counted.
void host_waits(const Clock& moment, const std::string& why);
void synchronize_device(int device, const std::string& why);
/// Whether this process has used a device: it has a context there.
bool is_used(int device);
/// Whether the host knows that the moment has passed.
bool is_done(const Clock& moment);

struct HostWaits {
  struct Place {
    std::string why;
    Stack stack;
    int64_t count = 0;
  };
  int64_t waits = 0;            // of the host for work that it did not know to be done
  int64_t needless = 0;         // for what it knew
  int64_t launches_before = 0;  // num_launches() at the last of them
  std::map<std::string, Place> places;

  std::string text() const;
};
/// Returns how often the host has waited since the last call, and where.
HostWaits take_host_waits();
/// Returns how much work was given to streams so far.
int64_t num_launches();

// --- for the files of this folder

/// One lock for all that the device keeps.
using Lock = std::lock_guard<std::recursive_mutex>;
std::recursive_mutex& device_mutex();
size_t index_of(const c10::Stream& stream);
/// Returns the clock of a stream, to be changed under the lock.
Clock& clock_at(size_t stream);
const Clock& host_clock();
/// Begins work of a stream: what the host knows holds for it. Returns the work's tick.
uint64_t begin_work(size_t stream, const char* name);
std::string name_of_stream(size_t stream);
/// Notes that the process uses a device; any thread may call. One process is one rank: what it does on a
/// second device, even a wait, makes a context there, which on a GPU takes hundreds of megabytes, and is
/// found.
void note_use(int device, const std::string& what);

}  // namespace deepspeed::simulated
