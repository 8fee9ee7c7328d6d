// Collectives by nodes, tested on one machine with a file that gives the speed of the links.
#include "deepspeed/comm/backends/nodes/node_levels.h"

#include <csignal>
#include <fstream>
#include <functional>
#include <string>

#include <torch/types.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/log/comms_logger.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::comm {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::RankOutcome;
using testing::run_ranks;
using testing::TemporaryFolder;

// With these, every collective of more than a few bytes is faster by nodes.
constexpr LinkFigures kFastWithin{{0, 400}, {1, 0.1}};
// With these, none is.
constexpr LinkFigures kSlowWithin{{1000, 0.01}, {1, 100}};

/// Makes ranks created during its lifetime read the figures, with `ranks_per_node` ranks per node.
class LinksOfJobs {
 public:
  LinksOfJobs(const LinkFigures& figures, int ranks_per_node) : path_(folder_.path() / "links.json") {
    std::ofstream(path_) << link_figures_json(figures).dump();
    env::set("DEEPSPEED_LINKS", path_.string());
    env::set("DEEPSPEED_RANKS_PER_NODE", std::to_string(ranks_per_node));
  }
  ~LinksOfJobs() {
    env::set("DEEPSPEED_LINKS", std::nullopt);
    env::set("DEEPSPEED_RANKS_PER_NODE", std::nullopt);
  }
  std::string path() const { return path_.string(); }

 private:
  TemporaryFolder folder_;
  std::filesystem::path path_;
};

/// Returns whole numbers, whose sums are exact in every tested type.
at::Tensor known(int rank, int64_t numel, at::ScalarType type) {
  return (at::arange(numel, at::kFloat).remainder(5) + rank % 3).to(type);
}

at::Tensor sum_of_known(const World& world, int64_t numel, at::ScalarType type) {
  at::Tensor sum = known(0, numel, type);
  for (int rank = 1; rank < world.size(); ++rank) sum += known(rank, numel, type);
  return sum;
}

/// Returns the bytes that this rank receives from other nodes in `body`.
double bytes_between(const World& world, const std::function<void()>& body) {
  CommsLogger& logger = CommsLogger::instance();
  logger.start({.ranks_per_node = world.ranks_per_node()});
  const double before = logger.link_bytes().between_nodes;
  body();
  const double bytes = logger.link_bytes().between_nodes - before;
  logger.stop();
  return bytes;
}

void expect_sums_and_gathers(const World& world, int64_t numel, at::ScalarType type) {
  const ProcessGroup& group = world.group();
  const int n = world.size(), rank = world.rank();
  const auto what = [&] { return message(n, " ranks, ", numel, " elements of ", type); };
  const at::Tensor all = known(rank, numel, type);
  group.all_reduce(all);
  EXPECT_TRUE(all.equal(sum_of_known(world, numel, type))) << what();
  const at::Tensor largest = known(rank, numel, type);
  group.all_reduce(largest, ReduceOp::kMax);
  EXPECT_TRUE(largest.equal((known(0, numel, at::kFloat) + std::min(2, n - 1)).to(type))) << what();

  const at::Tensor input = known(rank, numel * n, type), block = at::empty({numel}, type);
  group.reduce_scatter(block, input);
  EXPECT_TRUE(block.equal(sum_of_known(world, numel * n, type).narrow(0, rank * numel, numel))) << what();
  EXPECT_TRUE(input.equal(known(rank, numel * n, type))) << "an input that is not the output stays";

  const at::Tensor whole = at::empty({numel * n}, type);
  group.all_gather(whole, known(rank, numel, type));
  for (int from = 0; from < n; ++from)
    EXPECT_TRUE(whole.narrow(0, from * numel, numel).equal(known(from, numel, type))) << what() << from;

  // Uneven owners with gaps between them; one owns nothing.
  std::vector<Interval> owned;
  int64_t end = 1;
  for (int owner = 0; owner < n; ++owner) {
    const int64_t begin = end, size = owner == 1 ? 0 : numel / (owner + 1) + 1;
    owned.push_back({begin, end = begin + size});
    end += owner % 2;
  }
  const at::Tensor to_owners = known(rank, end + 3, type);
  group.reduce_to_owners(to_owners, owned);
  const Interval own = owned[size_t(rank)];
  EXPECT_TRUE(to_owners.narrow(0, own.begin, own.numel())
                  .equal(sum_of_known(world, end + 3, type).narrow(0, own.begin, own.numel())))
      << what();
}

TEST(NodeLevels, GiveTheSumsAndGathersOfOneStep) {
  for (const auto& [ranks, places] : {std::pair(4, 2), {6, 2}, {6, 3}}) {
    const LinksOfJobs links(kFastWithin, places);
    run_ranks(ranks, [](World& world) {
      const at::Tensor large = at::zeros({4000});
      const double flat = 2 * 16000.0 / world.size() * (world.size() - world.ranks_per_node());
      EXPECT_DOUBLE_EQ(bytes_between(world, [&] { world.group().all_reduce(large); }),
                       flat / world.ranks_per_node());
      for (const at::ScalarType type :
           {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kByte})
        for (const int64_t numel : {1, 7, 1000, 40001}) expect_sums_and_gathers(world, numel, type);
    });
  }
}

TEST(NodeLevels, WorkOverSocketsToo) {
  env::set("DEEPSPEED_SHARED_MEMORY", "0");
  {
    const LinksOfJobs links(kFastWithin, 2);
    run_ranks(4, [](World& world) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kInt})
        for (const int64_t numel : {7, 400001}) expect_sums_and_gathers(world, numel, type);
    });
  }
  env::set("DEEPSPEED_SHARED_MEMORY", std::nullopt);
}

TEST(NodeLevels, AverageWithoutOverflow) {
  const LinksOfJobs links(kFastWithin, 2);
  run_ranks(4, [](World& world) {
    for (const at::ScalarType type : {at::kFloat, at::kHalf}) {
      const at::Tensor mean = at::full({1001}, 30720.0 + 1024 * world.rank(), type);
      world.group().all_reduce(mean, ReduceOp::kAvg);
      EXPECT_TRUE(mean.eq(32256).all().item<bool>()) << type << mean[0];
    }
  });
}

TEST(NodeLevels, RunUnderWayTogetherAndBesideOtherCalls) {
  const LinksOfJobs links(kFastWithin, 2);
  run_ranks(4, [](World& world) {
    const auto own = world.own_group("levels");
    std::vector<at::Tensor> sums;
    std::vector<Work> works;
    for (int i = 0; i < 8; ++i) {
      sums.push_back(at::full({10000 + i}, double(i + world.rank())));
      works.push_back((i % 2 == 0 ? own : world.group()).start_all_reduce(sums.back()));
      const at::Tensor sent = at::full({3}, double(i));
      own.broadcast(sent, i % 4);
    }
    // Ranks wait in different orders.
    for (int i = 0; i < 8; ++i) works[size_t((i + world.rank()) % 8)].wait();
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(sums[size_t(i)].eq(4 * i + 6).all().item<bool>());
  });
}

TEST(NodeLevels, AreLeftOutWhereOneStepIsFaster) {
  const LinksOfJobs links(kSlowWithin, 2);
  run_ranks(4, [](World& world) {
    const at::Tensor large = at::ones({4000});
    EXPECT_DOUBLE_EQ(bytes_between(world, [&] { world.group().all_reduce(large); }), 2 * 2 * 4000.0);
    EXPECT_TRUE(large.eq(4).all().item<bool>());
  });
}

TEST(NodeLevels, NeedAFile) {
  env::set("DEEPSPEED_RANKS_PER_NODE", "2");
  run_ranks(4, [](World& world) {
    EXPECT_DOUBLE_EQ(bytes_between(world, [&] { world.group().all_reduce(at::ones({4000})); }),
                     2 * 2 * 4000.0);
  });
  env::set("DEEPSPEED_RANKS_PER_NODE", std::nullopt);
}

TEST(NodeLevels, RanksThatCallOtherThingsAreTold) {
  const LinksOfJobs links(kFastWithin, 2);
  const auto outcomes = testing::fork_ranks(
      4,
      [](int rank) {
        World world = init_distributed({.timeout = std::chrono::seconds(20)});
        const at::Tensor tensor = at::ones({4000});
        return error_of<CommError>(
            [&] { rank == 3 ? world.group().broadcast(tensor, 0) : world.group().all_reduce(tensor); });
      },
      {.end_together = true});
  for (const RankOutcome& outcome : outcomes)
    EXPECT_THAT(outcome.value, AllOf(HasSubstr("the ranks diverged"), HasSubstr("rank 3 called broadcast"),
                                     HasSubstr("called all_reduce")));
}

TEST(NodeLevels, OfARankThatDiesNameIt) {
  const LinksOfJobs links(kFastWithin, 2);
  const auto outcomes = testing::fork_ranks(4,
                                            [](int rank) {
                                              World world =
                                                  init_distributed({.timeout = std::chrono::seconds(20)});
                                              const at::Tensor tensor = at::ones({400000});
                                              world.group().all_reduce(tensor);
                                              if (rank == 3) ::kill(::getpid(), SIGKILL);
                                              return error_of<CommError>([&] {
                                                while (true) world.group().all_reduce(tensor);
                                              });
                                            },
                                            {.end_together = true});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_TRUE(outcomes[size_t(rank)].ok());
    EXPECT_THAT(outcomes[size_t(rank)].value, HasSubstr("no sign of life from rank 3")) << rank;
  }
}

TEST(AgreedLinks, ABadFileOfRank0IsAnErrorOnAllRanks) {
  const LinksOfJobs links(kFastWithin, 2);
  std::ofstream(links.path()) << "{}";
  const auto outcomes =
      testing::fork_ranks(2,
                          [&](int rank) {
                            if (rank == 1) env::set("DEEPSPEED_LINKS", std::nullopt);
                            const auto join = [] { init_distributed({.timeout = std::chrono::seconds(20)}); };
                            return rank == 0 ? error_of<ConfigError>(join) : error_of<UsageError>(join);
                          },
                          {.end_together = true});
  for (const RankOutcome& outcome : outcomes)
    EXPECT_THAT(outcome.value, AllOf(HasSubstr(links.path()), HasSubstr("has no within_node")));
}

TEST(AgreedLinks, ThoseOfRank0CountWhereFilesDiffer) {
  const LinksOfJobs links(kFastWithin, 2), others(kSlowWithin, 2);
  const auto outcomes = testing::fork_ranks(
      4,
      [&](int rank) {
        env::set("DEEPSPEED_LINKS", rank == 1 ? others.path() : links.path());
        if (rank == 2) env::set("DEEPSPEED_LINKS", "/nowhere/links.json");
        if (rank == 3) env::set("DEEPSPEED_LINKS", std::nullopt);
        log::set_level(log::Level::kWarning);
        ::testing::internal::CaptureStderr();
        World world = init_distributed({.timeout = std::chrono::seconds(20)});
        const std::string told = ::testing::internal::GetCapturedStderr();
        EXPECT_DOUBLE_EQ(bytes_between(world, [&] { world.group().all_reduce(at::ones({4000})); }),
                         2 * 4000.0);
        world.shutdown();
        return told;
      },
      {.end_together = true});
  for (const RankOutcome& outcome : outcomes) EXPECT_TRUE(outcome.ok());
  EXPECT_THAT(outcomes[1].value, AllOf(HasSubstr(others.path()), HasSubstr("has other figures")));
  EXPECT_THAT(outcomes[2].value, AllOf(HasSubstr("/nowhere/links.json"), HasSubstr("cannot be used")));
  EXPECT_EQ(outcomes[0].value, "");
  EXPECT_EQ(outcomes[3].value, "");
}

}  // namespace
}  // namespace deepspeed::comm
