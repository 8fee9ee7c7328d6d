// Ranks' collectives differ but end, as over NCCL. The guard detects that by the hash of their calls.
#include <thread>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/backends/c10d_group.h"

#include "tests/support/error_of.h"

namespace deepspeed::comm {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using StorePtr = c10::intrusive_ptr<c10d::Store>;

class DoneWork : public c10d::Work {
 public:
  DoneWork() { finish(); }
};

// Ends every operation at once, whatever the other ranks call.
class CarelessBackend : public c10d::Backend {
 public:
  using Backend::Backend;
  const std::string getBackendName() const override { return "careless"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    return c10::make_intrusive<DoneWork>();
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>&, const c10d::BroadcastOptions&) override {
    return c10::make_intrusive<DoneWork>();
  }
};

const Backend kCareless{.name = "careless",
                        .also = {},
                        .type = c10d::ProcessGroup::BackendType::CUSTOM,
                        .device = at::kCPU,
                        .meets_by_tags = false,
                        .suits = [](const Job&) { return false; },
                        .make = [](const Job&, const StorePtr&,
                                   const GroupDescription& group) -> c10::intrusive_ptr<c10d::Backend> {
                          return c10::make_intrusive<CarelessBackend>(group.rank, group.size());
                        }};

// Is a rank in this process: its guard and its groups over one store.
class CarelessRank {
 public:
  CarelessRank(StorePtr store, int rank)
      : store_(std::move(store)), rank_(rank), guard_(std::make_shared<DivergenceGuard>(store_, rank)) {}
  ~CarelessRank() { guard_->leave(500ms, /*is_known=*/true); }
  CarelessRank(const CarelessRank&) = delete;
  CarelessRank& operator=(const CarelessRank&) = delete;

  ProcessGroup group(const std::string& name, const std::vector<int>& ranks) {
    const int place = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin());
    const GroupDescription group{name, kCareless.name, kCareless.device, place, ranks, 60s};
    return ProcessGroup(
        C10dGroup::make(kCareless, group, name, connect(kCareless, Job(), group, store_), store_, guard_));
  }

 private:
  StorePtr store_;
  int rank_;
  std::shared_ptr<DivergenceGuard> guard_;
};

// Returns the error of one of the rank's next calls, within `limit`.
std::string error_within(const ProcessGroup& group, std::chrono::seconds limit) {
  const auto tensor = at::ones({4});
  const auto end = Clock::now() + limit;
  while (Clock::now() < end) {
    const auto text = error_of<CommError>([&] { group.all_reduce(tensor); });
    if (text != "no error") return text;
    std::this_thread::sleep_for(10ms);
  }
  return "no error";
}

struct TwoRanks {
  TwoRanks() : store(c10::make_intrusive<c10d::HashStore>()), first(store, 0), second(store, 1) {}
  StorePtr store;
  CarelessRank first, second;
};

void call_alike(const std::vector<ProcessGroup>& groups, int times) {
  const auto tensor = at::ones({8});
  for (int i = 0; i < times; ++i) {
    for (const auto& group : groups) group.all_reduce(tensor);
  }
}

void expect_both_fail(const std::vector<ProcessGroup>& groups, const std::vector<std::string>& expected) {
  std::vector<std::string> texts(groups.size());
  std::vector<std::thread> ranks;
  for (size_t i = 0; i < groups.size(); ++i) {
    ranks.emplace_back([&, i] { texts[i] = error_within(groups[i], 60s); });
  }
  for (auto& rank : ranks) rank.join();
  for (const auto& text : texts) {
    EXPECT_THAT(text, HasSubstr("the ranks diverged in group 'data'"));
    for (const auto& part : expected) EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(SequenceCheck, NamesTheFirstCallsThatDifferAlthoughAllEnded) {
  TwoRanks ranks;
  const std::vector<ProcessGroup> groups{ranks.first.group("data", {0, 1}),
                                         ranks.second.group("data", {0, 1})};
  call_alike(groups, 20);
  groups[0].all_reduce(at::ones({8}), ReduceOp::kMax);
  groups[1].broadcast(at::ones({8}), 1);
  call_alike(groups, 300);  // more than the report of waiting ranks contains
  expect_both_fail(groups, {"rank 0 called all_reduce #21 (max of 8 Float)",
                            "rank 1 called broadcast #21 (8 Float, root 1)"});
}

TEST(SequenceCheck, SeesARankThatMadeOneCallLess) {
  TwoRanks ranks;
  const auto step = std::make_shared<std::atomic<int64_t>>(6);
  const std::vector<ProcessGroup> groups{ranks.first.group("data", {0, 1}).at_position(step),
                                         ranks.second.group("data", {0, 1}).at_position(step)};
  groups[0].all_reduce(at::ones({8}));
  *step = 7;
  call_alike(groups, 10);
  expect_both_fail(groups, {"rank 0 called all_reduce #1 (sum of 8 Float, micro step 6)",
                            "rank 1 called all_reduce #1 (sum of 8 Float, micro step 7)"});
}

TEST(SequenceCheck, NamesWhatRanksHoldThatMadeTheSameCalls) {
  TwoRanks ranks;
  const auto holding = [](double lr) {
    auto values = std::make_shared<CurrentValues>();
    values->set({static_cast<uint64_t>(1000 * lr), [lr] {
                   return NamedTexts{{"momentum", "0.9"}, {"lr", lr < 0.5 ? "0.1" : "0.7"}};
                 }});
    return values;
  };
  const std::vector<ProcessGroup> groups{ranks.first.group("data", {0, 1}).holding(holding(0.1)),
                                         ranks.second.group("data", {0, 1}).holding(holding(0.7))};
  call_alike(groups, 100);
  expect_both_fail(groups, {"in all_reduce #1 (sum of 8 Float) lr is 0.1 on rank 0 and 0.7 on rank 1"});
}

TEST(SequenceCheck, SeesADifferenceThatIsOlderThanAllThatIsRemembered) {
  TwoRanks ranks;
  const std::vector<ProcessGroup> groups{ranks.first.group("data", {0, 1}),
                                         ranks.second.group("data", {0, 1})};
  groups[0].all_reduce(at::ones({3}));
  groups[1].all_reduce(at::ones({4}));
  call_alike(groups, 5000);
  expect_both_fail(groups, {"at or before collective #", "rank 0 and rank 1 called different collectives"});
}

TEST(SequenceCheck, TellsAllRanksAlsoThoseThatAgree) {
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::unique_ptr<CarelessRank>> ranks;
  std::vector<ProcessGroup> groups;
  for (int rank = 0; rank < 5; ++rank) {
    ranks.push_back(std::make_unique<CarelessRank>(store, rank));
    groups.push_back(ranks.back()->group("data", {0, 1, 2, 3, 4}));
  }
  for (int rank = 0; rank < 5; ++rank) groups[rank].all_reduce(at::ones({rank == 3 ? 7 : 8}));
  expect_both_fail(groups, {"rank 3 called all_reduce #1 (sum of 7 Float)"});
}

TEST(SequenceCheck, IsSilentIfRanksAgreeAtDifferentTimesInSeveralGroups) {
  TwoRanks ranks;
  const std::vector<ProcessGroup> data{ranks.first.group("data", {0, 1}), ranks.second.group("data", {0, 1})};
  const std::vector<ProcessGroup> other{ranks.first.group("other", {1, 0}),
                                        ranks.second.group("other", {1, 0})};
  const auto program = [&](int rank) {
    const auto tensor = at::ones({8});
    for (int i = 0; i < 40; ++i) {
      std::this_thread::sleep_for(rank == 0 ? 40ms : 70ms);  // up to 1.2 s apart
      data[rank].all_reduce(tensor);
      for (int j = 0; j < 50; ++j) other[rank].broadcast(tensor, j % 2);
    }
  };
  EXPECT_NO_THROW({
    std::thread second([&] { EXPECT_EQ(error_of<CommError>([&] { program(1); }), "no error"); });
    EXPECT_EQ(error_of<CommError>([&] { program(0); }), "no error");
    second.join();
  });
}

}  // namespace
}  // namespace deepspeed::comm
