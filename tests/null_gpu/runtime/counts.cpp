#include "tests/null_gpu/runtime/counts.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

#include <unistd.h>

#include "tests/null_gpu/runtime/hooks.h"

namespace null_gpu {
namespace {

struct Counts {
  std::mutex mutex;
  std::map<std::string, long> numbers;
  std::string text;
};

Counts& all() {
  static auto* const made = new Counts;  // outlives what counts at the end of the process
  return *made;
}

// With NULL_GPU_COUNTS, a file's name, each process leaves its counts there, in a file of its own.
struct AtTheEnd {
  ~AtTheEnd() {
    const char* const name = std::getenv("NULL_GPU_COUNTS");
    if (name == nullptr) return;
    if (std::FILE* const file = std::fopen((name + ("." + std::to_string(::getpid()))).c_str(), "w")) {
      std::fputs(null_gpu_counts(), file);
      std::fclose(file);
    }
  }
} at_the_end;

}  // namespace

void count(const std::string& kind) {
  const std::lock_guard lock(all().mutex);
  ++all().numbers[kind];
}

}  // namespace null_gpu

extern "C" {

const char* null_gpu_counts() {
  auto& counts = null_gpu::all();
  const std::lock_guard lock(counts.mutex);
  counts.text.clear();
  for (const auto& [kind, number] : counts.numbers) counts.text += kind + " " + std::to_string(number) + "\n";
  return counts.text.c_str();
}

void null_gpu_reset_counts() {
  const std::lock_guard lock(null_gpu::all().mutex);
  null_gpu::all().numbers.clear();
}

void null_gpu_count(const char* name) { null_gpu::count(name); }
}
