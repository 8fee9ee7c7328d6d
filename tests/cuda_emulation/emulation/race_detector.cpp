// Sees every access of kernels to memory, and finds races by CUDA's rules.
//
// Their files are compiled with -fsanitize=thread, which makes the compiler call the functions at the end of
// this file before each access, and are linked without the library that usually has them. It finds two
// threads at one byte, of which one writes, without a barrier or __syncwarp() between them: in shared memory,
// and in global memory among all threads of the grid. It also finds reads of shared memory that the block has
// not written, accesses that are not aligned, and accesses to memory that is no device's.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <dlfcn.h>

#include "cuda_emulation/emulation/grid.h"

// The linker says where the program's constants and variables lie.
extern "C" char __data_start[], _end[], __executable_start[];

namespace emulation {
namespace {

struct Access {
  uint32_t launch = 0, block = 0, epoch = 0, clock = 0;
  uint16_t thread = 0;
  bool is_atomic = false;
};

/// What is known of a byte: its last write, and the last reads of two threads.
struct Cell {
  Access write, read, other_read;
};

struct Region {
  Region(char* from, char* to, bool shared)
      : begin(from),
        end(to),
        is_shared(shared),
        cells(std::make_unique<Cell[]>(static_cast<size_t>(to - from))) {}

  bool has(const char* at) const { return at >= begin && at < end; }

  char *begin, *end;
  bool is_shared;
  std::unique_ptr<Cell[]> cells;
};

std::vector<std::unique_ptr<Region>>& regions() {
  static std::vector<std::unique_ptr<Region>> all;
  return all;
}

Region* last_found = nullptr;

// Shared variables are static here. Kernels may write no other variable of the program.
Region& program_variables() {
  static Region region(__data_start, _end, true);
  return region;
}

Region* region_of(const char* at) {
  if (last_found != nullptr && last_found->has(at)) return last_found;
  for (const auto& region : regions()) {
    if (region->has(at)) return last_found = region.get();
  }
  return at >= __data_start && at < _end ? &program_variables() : nullptr;
}

/// Says whether an earlier access is ordered before what the running thread does now.
bool is_ordered(const Access& before, bool is_shared) {
  if (before.launch != running.launch) return true;
  if (before.block != running.block) return is_shared;  // another block's shared memory is other memory
  if (before.thread == running.thread || before.epoch < running.epoch) return true;
  return before.thread / kWarpSize == running.thread / kWarpSize &&
         running.clocks[before.thread % kWarpSize] > before.clock;
}

/// Returns file and line of a caller.
std::string line_of(const void* caller) {
  Dl_info info{};
  if (::dladdr(caller, &info) == 0) return "?";
  const auto offset = static_cast<const char*>(caller) - static_cast<const char*>(info.dli_fbase) - 1;
  std::array<char, 512> command{}, line{'?'};
  std::snprintf(command.data(), command.size(), "addr2line -e '%s' 0x%tx 2>/dev/null", info.dli_fname,
                offset);
  if (FILE* const pipe = ::popen(command.data(), "r")) {
    if (std::fgets(line.data(), static_cast<int>(line.size()), pipe) == nullptr) line = {'?'};
    ::pclose(pipe);
  }
  line[std::strcspn(line.data(), "\n")] = 0;
  const char* const slash = std::strrchr(line.data(), '/');
  return slash != nullptr ? slash + 1 : line.data();
}

/// Reports each place of the source once a launch.
void report_access(const char* kind, std::string text, const void* caller) {
  static std::set<std::pair<std::string, const void*>> reported;
  static uint32_t launch = 0;
  if (std::exchange(launch, running.launch) != running.launch) reported.clear();
  if (!reported.insert({kind, caller}).second) return;
  report(kind, std::move(text) + " at " + line_of(caller));
}

void expect_ordered(const Access& before, const Access& now, const char* what, const Region& region,
                    const char* at, const void* caller) {
  if ((now.is_atomic && before.is_atomic) || is_ordered(before, region.is_shared)) return;
  std::string text = what;
  text += region.is_shared ? " in shared memory" : " in global memory";
  text += " with thread " + std::to_string(before.thread) + " of block " + std::to_string(before.block);
  if (&region != &program_variables())
    text +=
        ", byte " + std::to_string(at - region.begin) + " of " + std::to_string(region.end - region.begin);
  report_access("race", std::move(text), caller);
}

void see_byte(Region& region, const char* at, const Access& now, bool writes, const void* caller) {
  Cell& cell = region.cells[static_cast<size_t>(at - region.begin)];
  expect_ordered(cell.write, now, writes ? "a write races with a write" : "a read races with a write", region,
                 at, caller);
  if (writes) {
    expect_ordered(cell.read, now, "a write races with a read", region, at, caller);
    expect_ordered(cell.other_read, now, "a write races with a read", region, at, caller);
    cell.write = now;
    if (!now.is_atomic) return;
  } else if (region.is_shared && (cell.write.launch != running.launch || cell.write.block != running.block)) {
    report_access("uninitialized", "a read of shared memory that this block has not written", caller);
  }
  if (cell.read.thread != now.thread || cell.read.block != now.block) cell.other_read = cell.read;
  cell.read = now;
}

bool is_own_variable(const char* at) {
  const char* const builtin = reinterpret_cast<const char*>(&builtins);
  return (at >= running.stack_begin && at < running.stack_end) ||
         (at >= builtin && at < builtin + sizeof(builtins));
}

void see(const void* address, size_t bytes, bool writes, bool is_atomic, const void* caller) {
  const char* const at = static_cast<const char*>(address);
  if (running.launch == 0 || running.in_engine || is_own_variable(at)) return;
  const InEngine guard;
  ++counts().accesses;
  Region* const region = region_of(at);
  if (region == nullptr || at + bytes > region->end) {
    const bool is_constant = !writes && at >= __executable_start && at < __data_start;
    if (!is_constant)
      report_access("foreign memory",
                    std::string(writes ? "a write" : "a read") + " of " + std::to_string(bytes) +
                        " bytes outside of the device's arrays",
                    caller);
    return;
  }
  const Access now{running.launch,
                   running.block,
                   running.epoch,
                   running.clocks[running.thread % kWarpSize],
                   static_cast<uint16_t>(running.thread),
                   is_atomic};
  for (size_t i = 0; i < bytes; ++i) see_byte(*region, at + i, now, writes, caller);
}

}  // namespace

bool has_race_detector() { return true; }

void memory_is_born(char* begin, size_t bytes) {
  regions().push_back(std::make_unique<Region>(begin, begin + bytes, false));
}

void memory_dies(char* begin) {
  std::erase_if(regions(), [=](const auto& region) { return region->begin == begin; });
  last_found = nullptr;
}

void dynamic_shared_is(char* begin, size_t bytes) {
  std::erase_if(regions(), [](const auto& region) { return region->is_shared; });
  last_found = nullptr;
  if (bytes != 0) regions().push_back(std::make_unique<Region>(begin, begin + bytes, true));
}

void note_access(const void* address, size_t bytes, bool writes, const void* caller) {
  see(address, bytes, writes, false, caller);
}

void note_atomic(const void* address, size_t bytes, const void* caller) {
  see(address, bytes, true, true, caller);
}

}  // namespace emulation

#define CALLER __builtin_return_address(0)
#define HOOKS_OF(N)                                                                        \
  void __tsan_read##N(void* at) { emulation::see(at, N, false, false, CALLER); }           \
  void __tsan_write##N(void* at) { emulation::see(at, N, true, false, CALLER); }           \
  void __tsan_unaligned_read##N(void* at) { emulation::see(at, N, false, false, CALLER); } \
  void __tsan_unaligned_write##N(void* at) { emulation::see(at, N, true, false, CALLER); } \
  void __tsan_volatile_read##N(void* at) { emulation::see(at, N, false, false, CALLER); }  \
  void __tsan_volatile_write##N(void* at) { emulation::see(at, N, true, false, CALLER); }
extern "C" {
HOOKS_OF(1)
HOOKS_OF(2)
HOOKS_OF(4)
HOOKS_OF(8)
HOOKS_OF(16)
void __tsan_read_range(void* at, size_t bytes) { emulation::see(at, bytes, false, false, CALLER); }
void __tsan_write_range(void* at, size_t bytes) { emulation::see(at, bytes, true, false, CALLER); }
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
