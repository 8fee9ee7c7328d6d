// main() of the test binaries that link torch.
#include <ATen/Parallel.h>

#include <gtest/gtest.h>

#include "deepspeed/base/env.h"

// A build with AddressSanitizer asks for this: torch leaks its thread pool in a process that was forked, on
// purpose.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:caffe2::pthreadpool"; }

int main(int argc, char** argv) {
  // One thread: run_ranks() forks, and a forked process has no thread pool; also, results do not depend on
  // the machine.
  at::set_num_threads(1);
  deepspeed::env::set("OMP_NUM_THREADS", "1");  // an engine sets the number of threads anew
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    deepspeed::env::set(name, std::nullopt);
  }
  // The tests are those of the CPU; what runs on a GPU has a folder of its own, whose CTest asks for it.
  if (!deepspeed::env::get("DS_ACCELERATOR")) deepspeed::env::set("DS_ACCELERATOR", "cpu");
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
