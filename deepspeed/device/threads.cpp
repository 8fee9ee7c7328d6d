#include "deepspeed/device/threads.h"

#include <algorithm>
#include <string>
#include <thread>

#include <ATen/Parallel.h>

#include <sched.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"

namespace deepspeed::device {
namespace {

int checked(const char* what, int64_t threads) {
  if (threads < 1) raise<UsageError>("device.threads", what, " is ", threads, ", expected 1 or more");
  return static_cast<int>(threads);
}

// OMP_NUM_THREADS may be a list, a number for each level of nesting: the first one counts.
std::optional<int> threads_of_environment() {
  const auto text = env::get("OMP_NUM_THREADS");
  if (!text) return std::nullopt;
  const auto first = text->substr(0, text->find(','));
  if (first.empty() || first.size() > 6 || first.find_first_not_of("0123456789") != std::string::npos) {
    raise<UsageError>("device.threads", "the variable OMP_NUM_THREADS is '", *text,
                      "', expected a whole number");
  }
  return checked("OMP_NUM_THREADS", std::stoi(first));
}

}  // namespace

int num_available_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof(mask), &mask) == 0) return std::max(1, CPU_COUNT(&mask));
  return std::max(1U, std::thread::hardware_concurrency());
}

int threads_per_rank(int local_size, std::optional<int> asked) {
  checked("the number of local ranks", local_size);
  if (asked) return checked("the number of threads", *asked);
  if (const auto threads = threads_of_environment()) return *threads;
  const int cores = num_available_cores();
  const bool is_bound = cores < ::sysconf(_SC_NPROCESSORS_ONLN);
  return is_bound ? cores : std::max(1, cores / local_size);
}

int set_threads_per_rank(int local_size, std::optional<int> asked) {
  const int threads = threads_per_rank(local_size, asked);
  at::set_num_threads(threads);
  return threads;
}

}  // namespace deepspeed::device
