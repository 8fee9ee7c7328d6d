#include "deepspeed/device/threads/core_binding.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <thread>

#include <ATen/Parallel.h>

#include <sched.h>
#include <unistd.h>

#include "deepspeed/base/log.h"

// Sets the calling thread's number of threads for parallel regions, in torch's OpenMP run time. torch's own
// call would set it for all threads.
extern "C" void omp_set_num_threads(int);

namespace deepspeed::device {

Cores available_cores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  Cores cores;
  if (::sched_getaffinity(0, sizeof(mask), &mask) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &mask)) cores.push_back(core);
    }
  }
  if (cores.empty()) {
    cores.resize(std::max(1U, std::thread::hardware_concurrency()));
    std::iota(cores.begin(), cores.end(), 0);
  }
  return cores;
}

Cores cores_of_rank(int local_rank, int local_size) {
  const Cores all = available_cores();
  const auto count = static_cast<int>(all.size());
  const bool is_bound = count < ::sysconf(_SC_NPROCESSORS_ONLN);
  if (is_bound || local_size <= 1) return all;
  const int share = std::max(1, count / local_size);
  const int first = local_rank * share % count;
  return {all.begin() + first, all.begin() + std::min(first + share, count)};
}

Cores last_cores(const Cores& cores, double part) {
  const auto count = static_cast<int>(cores.size());
  if (count <= 1) return cores;
  const int others = std::clamp(static_cast<int>((1.0 - part) * count), 1, count - 1);
  return {cores.begin() + others, cores.end()};
}

void bind_this_thread(const Cores& cores) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int core : cores) CPU_SET(core, &mask);
  if (::sched_setaffinity(0, sizeof(mask), &mask) != 0)
    log::warning("a thread is not bound to its ", cores.size(), " cores: ", std::strerror(errno));
  at::get_num_threads();  // torch sets its own number at a thread's first use
  omp_set_num_threads(static_cast<int>(cores.size()));
}

}  // namespace deepspeed::device
