// Ranks whose training programs part ways get an error that names both, long before the timeout.
#include <cstdlib>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/param_access.h"

#include "tests/engine/make_engine.h"
#include "tests/support/parting_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed {
namespace {

using ::testing::AllOf;
using testing::basic;
using ::testing::HasSubstr;
using testing::make_engine;
using testing::train_step;

/// Returns the texts of the CommErrors that `program` ends with on two ranks.
template <class Program>
std::vector<std::string> errors_of(int stage, const Program& program) {
  return testing::errors_of_two_ranks([&](comm::World& world) {
    const auto engine = make_engine(basic({{"zero_optimization", {{"stage", stage}}}}), world);
    return [&, engine] { program(*engine, world.rank(), world); };
  });
}

// What allreduce_gradients(bucket_size) decides is what travels: ranks that pass different sizes part ways.
TEST(EngineDivergence, NamesDifferentBucketSizes) {
  const auto texts = errors_of(1, [](auto& engine, int rank, comm::World&) {
    const auto [inputs, targets] = testing::odd_batch(rank, 4);
    engine.backward(engine.forward(inputs, targets), {.allreduce_gradients = false});
    engine.allreduce_gradients(rank == 0 ? 100 : 1000000);
    engine.step();
  });
  for (const auto& text : texts) EXPECT_THAT(text, AllOf(HasSubstr("rank 0"), HasSubstr("rank 1")));
}

TEST(EngineDivergence, NamesARankThatLeavesOutAStep) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto texts = errors_of(stage, [](auto& engine, int rank, comm::World&) {
      for (int step = 0; step < 5; ++step) {
        const auto [inputs, targets] = testing::odd_batch(step, 4);
        engine.backward(engine.forward(inputs, targets));
        if (rank == 0 || step != 2) engine.step();
      }
    });
    for (const auto& text : texts) {
      EXPECT_THAT(text, AllOf(HasSubstr("the ranks diverged"), HasSubstr("rank 0 called"),
                              HasSubstr("rank 1 called"), HasSubstr("micro step 2")))
          << stage;
    }
  }
}

TEST(EngineDivergence, NamesARankWhoseDataEndSooner) {
  const auto texts = errors_of(1, [](auto& engine, int rank, comm::World& world) {
    for (int step = 0; step < (rank == 0 ? 4 : 3); ++step) train_step(engine, step);
    world.shutdown();
  });
  for (const auto& text : texts) {
    EXPECT_THAT(text, AllOf(HasSubstr("group 'engine'"), HasSubstr("rank 0 called"),
                            HasSubstr("micro step 3"), HasSubstr("rank 1 left after")));
  }
}

TEST(EngineDivergence, NamesTheOnlyRankThatSavesACheckpoint) {
  const testing::TemporaryFolder folder;
  const auto texts = errors_of(2, [&](auto& engine, int rank, comm::World&) {
    train_step(engine);
    if (rank == 0) engine.save_checkpoint(folder.string());
    train_step(engine);
  });
  for (const auto& text : texts) {
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 called"), HasSubstr("rank 1 called"), HasSubstr("micro step 1"),
                            HasSubstr("in save_checkpoint(), which all ranks must call")));
  }
}

TEST(EngineDivergence, NamesARankThatRaises) {
  const auto texts = errors_of(1, [](auto& engine, int rank, comm::World&) {
    train_step(engine);
    if (rank == 1) std::exit(3);  // as main() does after it reported an error
    train_step(engine);
  });
  EXPECT_THAT(texts[0],
              AllOf(HasSubstr("rank 0 called"), HasSubstr("micro step 1"), HasSubstr("rank 1 left after")));
}

// At stage 3 a parameter that one rank uses alone waits for the others.
TEST(EngineDivergence, NamesTheOnlyRankThatUsesAParameter) {
  const auto texts = errors_of(3, [](auto& engine, int rank, comm::World&) {
    train_step(engine);
    if (rank == 1) {
      const zero::ParameterAccess access(engine.module().parameters());
      engine.module().named_parameters()["last.weight"].sum();
    }
    train_step(engine);
  });
  for (const auto& text : texts) {
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 called all_gather"), HasSubstr("rank 1 called all_gather"),
                            HasSubstr("'last.weight'"), HasSubstr("'first.bias'")));
  }
}

}  // namespace
}  // namespace deepspeed
