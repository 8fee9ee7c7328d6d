#include "deepspeed/device/threads/threads.h"

#include <string>

#include <ATen/Parallel.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/device/threads/core_binding.h"

namespace deepspeed::device {
namespace {

int checked(const char* what, int64_t threads) {
  if (threads < 1) raise<UsageError>(what, " is ", threads, ", expected 1 or more");
  return static_cast<int>(threads);
}

// OMP_NUM_THREADS may be a list with a number per nesting level; the first one counts.
std::optional<int> threads_of_environment() {
  const auto text = env::get("OMP_NUM_THREADS");
  if (!text) return std::nullopt;
  const auto first = text->substr(0, text->find(','));
  if (first.empty() || first.size() > 6 || first.find_first_not_of("0123456789") != std::string::npos) {
    raise<UsageError>("the variable OMP_NUM_THREADS is '", *text, "', expected a whole number");
  }
  return checked("OMP_NUM_THREADS", std::stoi(first));
}

}  // namespace

int threads_per_rank(int local_size, std::optional<int> asked) {
  checked("the number of local ranks", local_size);
  if (asked) return checked("the number of threads", *asked);
  if (const auto threads = threads_of_environment()) return *threads;
  return static_cast<int>(cores_of_rank(/*local_rank=*/0, local_size).size());
}

int set_threads_per_rank(int local_size, std::optional<int> asked) {
  const int threads = threads_per_rank(local_size, asked);
  at::set_num_threads(threads);
  return threads;
}

}  // namespace deepspeed::device
