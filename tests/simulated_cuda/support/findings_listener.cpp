// Linked into a test program: what the simulated device finds fails the test in which it was found.
#include <cstdio>

#include <gtest/gtest.h>

#include "tests/simulated_cuda/device/findings.h"
#include "tests/simulated_cuda/device/streams.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::simulated {
namespace {

void fail_for_findings() {
  for (const std::string& finding : take_findings()) ADD_FAILURE() << finding;
}

class FindingsListener final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo&) override {
    take_findings();
    launches_ = num_launches();
  }
  void OnTestEnd(const ::testing::TestInfo&) override {
    fail_for_findings();
    all_launches_ += num_launches() - launches_;
  }
  void OnTestProgramEnd(const ::testing::UnitTest&) override {
    std::printf("%lld launches on the simulated device in this process\n",
                static_cast<long long>(all_launches_));
  }

  int64_t launches_ = 0, all_launches_ = 0;
};

const bool is_listening = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new FindingsListener);
  testing::check_at_end_of_ranks(&fail_for_findings);
  return true;
}();

}  // namespace
}  // namespace deepspeed::simulated
