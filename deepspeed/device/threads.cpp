#include "deepspeed/device/threads.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include <ATen/Parallel.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"

namespace deepspeed::device {
namespace {
std::atomic<bool> chosen_by_caller{false};
}

int use_rank_threads(int local_ranks) {
  if (!chosen_by_caller && !env::get("OMP_NUM_THREADS")) {
    const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    at::set_num_threads(std::max(1, cores / std::max(1, local_ranks)));
  }
  return at::get_num_threads();
}

void set_num_threads(int threads) {
  if (threads < 1) raise<UsageError>("device.threads", threads, " threads, expected at least 1");
  chosen_by_caller = true;
  at::set_num_threads(threads);
}

}  // namespace deepspeed::device
