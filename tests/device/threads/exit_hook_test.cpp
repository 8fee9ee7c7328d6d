#include "deepspeed/device/threads/exit_hook.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

namespace deepspeed {
namespace {

struct SaysGoodbye {
  ~SaysGoodbye() { std::fputs("static ", stderr); }
};

TEST(ExitHook, RunsNewestFirstAndBeforeOlderStatics) {
  const auto end = [] {
    static const SaysGoodbye older;
    const ExitHook first([] { std::fputs("first ", stderr); });
    const ExitHook second([] { std::fputs("second ", stderr); });
    {
      const ExitHook taken_back([] { std::fputs("taken back ", stderr); });
    }
    std::exit(3);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(3), "^second first static $");
}

TEST(ExitHook, RunsBeforeNewerOnesIfMarkedAsFirst) {
  const auto end = [] {
    const ExitHook older([] { std::fputs("older ", stderr); });
    const ExitHook one([] { std::fputs("one ", stderr); }, ExitHook::Turn::kBeforeAll);
    const ExitHook another([] { std::fputs("another ", stderr); }, ExitHook::Turn::kBeforeAll);
    const ExitHook newer([] { std::fputs("newer ", stderr); });
    {
      const ExitHook taken_back([] { std::fputs("taken back ", stderr); }, ExitHook::Turn::kBeforeAll);
    }
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "^another one newer older $");
}

TEST(ExitHook, EndsAThreadBeforeTheProcessContinues) {
  const auto end = [] {
    static std::atomic<bool> asked = false, ended = false;
    const ExitHook hook([] {
      asked = true;
      while (!ended) std::this_thread::yield();
      std::fputs("ended", stderr);
    });
    std::thread([] {
      while (!asked) std::this_thread::yield();
      ended = true;
    }).detach();
    std::exit(0);
  };
  EXPECT_EXIT(end(), ::testing::ExitedWithCode(0), "^ended$");
}

}  // namespace
}  // namespace deepspeed
