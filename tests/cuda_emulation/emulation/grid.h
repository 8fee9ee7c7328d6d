// Runs CUDA kernels on the CPU, thread by thread.
//
// The threads of a block are fibers of one thread of the system. They meet at barriers and in warp functions
// as on a GPU; blocks run one after the other. It finds by itself: barriers that not all threads reach, warp
// functions whose lanes or masks do not fit, deadlocks, and launches that a GPU would refuse. The compiler
// helps with the rest: AddressSanitizer with accesses outside of arrays, UBSan with alignment,
// race_detector.cpp with races and with reads of what nobody has written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <source_location>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "cuda_emulation/emulation/warp_meetings.h"

namespace emulation {

using Where = std::source_location;

/// In which order threads run: 0: by their numbers; else at random, by this seed.
uint64_t& order_seed();

/// The blocks that the next launches run, one block each, from the first launch on: what a grid does at the
/// end of arrays that no test has the time for. Launches behind the last of them run all their blocks.
std::deque<uint64_t>& single_blocks();

/// What a launch did wrong. A launch with findings fails with cudaErrorLaunchFailure.
struct Finding {
  std::string kind;  // "barrier", "warp", "deadlock", "race", "uninitialized", "foreign memory"
  std::string text;
};
/// Returns the findings since the last call.
std::vector<Finding> take_findings();
void report(const char* kind, std::string text);

/// Counts of this process, for tests that say how much they have run.
struct Counts {
  uint64_t launches = 0, threads = 0, switches = 0, barriers = 0, warp_calls = 0, accesses = 0;
};
Counts& counts();

// ---- What kernels see
// --------------------------------------------------------------------------------------

struct Builtins {
  uint3 thread_index{}, block_index{};
  dim3 block_size, grid_size;
};
extern Builtins builtins;

/// Runs kernel(argument) once a thread. Errors are left for cudaGetLastError().
void run_grid(dim3 grid, dim3 block, size_t shared_bytes, const char* name, void (*kernel)(void*),
              void* argument);

/// What __syncthreads() and its relatives return.
struct Votes {
  int count = 0, all = 1, any = 0;
};
Votes barrier(bool predicate, const Where& where);

/// Meets the lanes of `mask`, and returns what each of them has brought.
Gathered gather(unsigned mask, uint64_t value, const char* function, const Where& where);
/// Meets them, and orders their accesses to memory.
void sync_warp(unsigned mask, const Where& where);
void report_lane_outside_mask(const char* function, unsigned lane, const Where& where);

unsigned lane();
void* dynamic_shared_memory();

// ---- What tests see
// ----------------------------------------------------------------------------------------

/// Memory of a device: exactly these bytes, at an address that is `offset` bytes behind a multiple of 256.
/// The race detector takes no other memory for the device's.
class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes, size_t offset = 0);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  void* whole_;
  char* data_;
  size_t bytes_;
};

// ---- What the race detector sees
// ---------------------------------------------------------------------------

/// The thread that runs. `launch` is 0 outside of kernels.
struct Running {
  uint32_t launch = 0, block = 0, thread = 0;
  uint32_t epoch = 0;                // barriers of the block so far
  const uint32_t* clocks = nullptr;  // of the warp's lanes, as far as this thread has heard of them
  const char *stack_begin = nullptr, *stack_end = nullptr;
  bool in_engine = false;  // the engine's own accesses are none of the kernel's
};
extern Running running;

/// Holds while a kernel calls the engine.
struct InEngine {
  InEngine() : before(running.in_engine) { running.in_engine = true; }
  ~InEngine() { running.in_engine = before; }
  bool before;
};

/// Tells the detector of an atomic access, and of one by code that the compiler does not see.
void note_atomic(const void* address, size_t bytes, const void* caller);
void note_access(const void* address, size_t bytes, bool writes, const void* caller);
void memory_is_born(char* begin, size_t bytes);
void memory_dies(char* begin);
void dynamic_shared_is(char* begin, size_t bytes);
bool has_race_detector();

}  // namespace emulation
