// Checks what an observer learns about the calls of two ranks.
#include "deepspeed/comm/watch/observer.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/fake.h"
#include "deepspeed/comm/watch/call_subject.h"

#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using testing::run_ranks;
using Outcome = ObservedCall::Outcome;

struct Heard {
  std::vector<ObservedCall> calls;
  CallObserver observer{[this](const ObservedCall& call) { calls.push_back(call); }};

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& call : calls) names.emplace_back(call.name);
    return names;
  }
};

// Makes one call of each kind and returns the bytes of its whole tensor, 4 bytes per element.
std::vector<std::pair<std::string, int64_t>> call_each_kind(const ProcessGroup& group) {
  const auto part = at::ones({3});
  const auto whole = at::ones({3 * group.size()});
  group.all_reduce(at::ones({5}));
  group.broadcast(at::ones({7}), 0);
  group.all_gather(whole, part);
  group.reduce_scatter(part, whole);
  group.reduce_to_owners(at::ones({4}), {{0, 1}, {1, 4}});
  group.all_to_all(at::empty({8}), at::ones({8}));
  if (group.rank() == 0) group.send(at::ones({9}), 1);
  if (group.rank() == 1) group.recv(at::empty({9}), 0);
  group.barrier();
  group.monitored_barrier();
  return {{"all_reduce", 20},
          {"broadcast", 28},
          {"all_gather", 24},
          {"reduce_scatter", 24},
          {"reduce_to_owners", 16},
          {"all_to_all", 32},
          {group.rank() == 0 ? "send" : "recv", 36},
          {"barrier", 0},
          {"monitored_barrier", 0}};
}

TEST(CallObserver, HearsEachKindOfCallWithItsBytes) {
  run_ranks(2, [](World& world) {
    Heard heard;
    const auto begin = ObservedCall::Clock::now();
    const auto expected = call_each_kind(world.group());
    const auto end = ObservedCall::Clock::now();
    ASSERT_EQ(heard.calls.size(), expected.size());
    auto last = begin;
    for (size_t i = 0; i < expected.size(); ++i) {
      const ObservedCall& call = heard.calls[i];
      EXPECT_EQ(call.name, expected[i].first);
      EXPECT_EQ(call.bytes, expected[i].second) << call.name;
      EXPECT_EQ(call.group, "world");
      EXPECT_EQ(call.group_size, 2);
      EXPECT_EQ(call.outcome, Outcome::kDone);
      EXPECT_LE(last, call.begin);
      EXPECT_LE(call.begin, call.wait_begin);
      EXPECT_LE(call.wait_begin, call.end);
      last = call.end;
    }
    EXPECT_LE(last, end);
  });
}

TEST(CallObserver, HearsWhatACallIsAbout) {
  const auto group = make_fake_world(2).group();
  Heard heard;
  {
    const CallSubject subject("parameter 'head.weight'");
    group.all_reduce(at::ones({2}));
  }
  group.all_reduce(at::ones({2}));
  ASSERT_EQ(heard.calls.size(), 2);
  EXPECT_EQ(heard.calls[0].subject, "parameter 'head.weight'");
  EXPECT_EQ(heard.calls[1].subject, "");
}

TEST(CallObserver, HearsNothingMoreOnceItWasRemoved) {
  const auto group = make_fake_world(2).group();
  std::vector<std::string> heard;
  auto observer =
      std::make_unique<CallObserver>([&](const ObservedCall& call) { heard.emplace_back(call.name); });
  EXPECT_TRUE(CallObserver::is_anyone_listening());
  group.barrier();
  auto under_way = group.start_all_reduce(at::ones({2}));
  observer = nullptr;
  EXPECT_FALSE(CallObserver::is_anyone_listening());
  under_way.wait();
  group.barrier();
  EXPECT_EQ(heard, std::vector<std::string>{"barrier"});
}

TEST(CallObserver, HearsCallsWhenTheyEndAndOnce) {
  const auto group = make_fake_world(2).group();
  auto earlier = group.start_barrier();  // before anyone observes
  Heard heard;
  earlier.wait();
  auto first = group.start_all_reduce(at::ones({2}));
  group.start_broadcast(at::ones({2}), 0);  // nobody waits for it
  group.barrier();
  first.wait();
  first.wait();
  EXPECT_EQ(heard.names(), (std::vector<std::string>{"broadcast", "barrier", "all_reduce"}));
  EXPECT_EQ(heard.calls[0].outcome, Outcome::kDropped);
  EXPECT_LE(heard.calls[2].begin, heard.calls[1].begin);
}

TEST(CallObserver, HearsACallThatFailed) {
  const auto group = make_fake_world(1).group();
  Heard heard;
  EXPECT_THROW(group.send(at::ones({2}), 0), UsageError);  // to itself
  ASSERT_EQ(heard.names(), std::vector<std::string>{"send"});
  EXPECT_EQ(heard.calls[0].outcome, Outcome::kFailed);
}

TEST(CallObserver, MayComeAndGoWhileThreadsCall) {
  constexpr int kCalls = 2000;
  const auto group = make_fake_world(2).group();
  Heard all;
  std::vector<std::thread> callers;
  for (int i = 0; i < 2; ++i) {
    callers.emplace_back([&] {
      for (int call = 0; call < kCalls; ++call) group.barrier();
    });
  }
  struct Passing {
    std::atomic<bool> is_gone{false};
    std::atomic<int> told_afterwards{0};
  };
  std::vector<std::shared_ptr<Passing>> passed;
  for (int i = 0; i < 200; ++i) {
    auto passing = std::make_shared<Passing>();
    {
      const CallObserver observer([passing](const ObservedCall&) {
        if (passing->is_gone) ++passing->told_afterwards;
      });
    }
    passing->is_gone = true;
    passed.push_back(std::move(passing));
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(all.calls.size(), 2 * kCalls);
  for (const auto& passing : passed) EXPECT_EQ(passing->told_afterwards, 0);
}

}  // namespace
}  // namespace deepspeed::comm
