// What tests ask of the null GPU that LD_PRELOAD has put before CUDA's libraries (runtime/hooks.h).
#pragma once

#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

#include <dlfcn.h>

namespace deepspeed::testing::null_gpu {

template <class Function>
Function* hook(const char* name) {
  auto* const found = reinterpret_cast<Function*>(::dlsym(RTLD_DEFAULT, name));
  if (found == nullptr) std::abort();  // the tests were started without it
  return found;
}

/// Keeps the default stream of the current device busy for so long.
inline void delay(int milliseconds) { hook<void(void*, int)>("null_gpu_delay")(nullptr, milliseconds); }

/// Returns what was counted since the last call, by its kind.
inline std::map<std::string, int64_t> take_counts() {
  std::istringstream lines(hook<const char*()>("null_gpu_counts")());
  hook<void()>("null_gpu_reset_counts")();
  std::map<std::string, int64_t> counts;
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.rfind(' ');
    counts[line.substr(0, space)] = std::stoll(line.substr(space + 1));
  }
  return counts;
}

}  // namespace deepspeed::testing::null_gpu
