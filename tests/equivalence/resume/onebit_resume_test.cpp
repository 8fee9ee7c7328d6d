// Optimizers whose ranks exchange 1 bit an element go on from a checkpoint: on as many ranks with the bits of
// an uninterrupted training, on others with errors that begin at zero.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "deepspeed/base/log.h"

#include "tests/equivalence/stages/onebit_training.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

struct Resumed {
  std::string name;
  Json config;
};

std::vector<Resumed> resumed_trainings() {
  std::vector<Resumed> all;
  for (const int stage : {0, 1}) {
    all.push_back({"Adam", onebit_adam(4, stage)});
    all.push_back({"Lamb", onebit_lamb(4, stage)});
  }
  all.push_back({"0/1 Adam", zero_one_adam(4)});
  all.push_back({"0/1 Adam in bf16", zero_one_adam(4, {{"bf16", {{"enabled", true}}}})});
  all.push_back(
      {"Lamb in fp16", onebit_lamb(4, 0, {{"fp16", {{"enabled", true}, {"initial_scale_power", 8}}}})});
  return all;
}

void expect_same_tensors(const zero::RankState& one, const zero::RankState& other, const std::string& what) {
  ASSERT_EQ(one.tensors.size(), other.tensors.size()) << what;
  for (size_t index = 0; index < one.tensors.size(); ++index) {
    EXPECT_EQ(one.tensors[index].first, other.tensors[index].first) << what;
    EXPECT_TRUE(one.tensors[index].second.equal(other.tensors[index].second))
        << what << " " << one.tensors[index].first;
  }
}

// With 0/1 Adam, steps 5, 6, 8, 12 and 16 end with an exchange; each rank makes the others by itself.
TEST(OneBitResume, HasTheBitsOfAnUninterruptedTraining) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    int number = 0;
    for (const Resumed& training : resumed_trainings()) {
      for (const int saved_at : {2, 4, 6, 7, 10}) {
        const std::string what = training.name + " at " + std::to_string(saved_at);
        const std::string path = (folder / std::to_string(number++)).string();
        const auto engine = zeropp_engine(training.config, world);
        train_zeropp(*engine, saved_at);
        engine->save_checkpoint(path);
        const auto resumed = zeropp_engine(training.config, world);
        resumed->load_checkpoint(path);
        EXPECT_TRUE(net_weights(*resumed).equal(net_weights(*engine))) << what;
        expect_same_tensors(resumed->optimizer()->exchange()->rank_state(),
                            engine->optimizer()->exchange()->rank_state(), what);
        EXPECT_EQ(train_zeropp(*resumed, 8), train_zeropp(*engine, 8)) << what;
        EXPECT_TRUE(net_weights(*resumed).equal(net_weights(*engine))) << what;
      }
    }
  });
}

TEST(OneBitResume, BeginsWithoutErrorsOnOtherRanksAndSaysSo) {
  const TemporaryFolder folder;
  const std::vector<Resumed> trainings = resumed_trainings();
  const auto path = [&](size_t index, int saved_at) {
    return (folder / (std::to_string(index) + "_" + std::to_string(saved_at))).string();
  };
  const auto for_each = [&](const std::function<void(const Resumed&, int, const std::string&)>& work) {
    for (size_t index = 0; index < trainings.size(); ++index) {
      for (const int saved_at : {2, 7}) work(trainings[index], saved_at, path(index, saved_at));
    }
  };
  run_ranks(2, [&](comm::World& world) {
    for_each([&](const Resumed& training, int saved_at, const std::string& path) {
      const auto engine = zeropp_engine(training.config, world);
      train_zeropp(*engine, saved_at);
      engine->save_checkpoint(path);
    });
  });
  run_ranks(3, [&](comm::World& world) {
    log::set_level(log::Level::kInfo);
    for_each([&](const Resumed& training, int saved_at, const std::string& path) {
      const std::string what = training.name + " at " + std::to_string(saved_at);
      const auto engine = zeropp_engine(training.config, world);
      ::testing::internal::CaptureStderr();
      engine->load_checkpoint(path);
      const std::string text = ::testing::internal::GetCapturedStderr();
      const bool says_so =
          text.find("the checkpoint has those of 2 ranks, the engine has 3") != std::string::npos;
      EXPECT_EQ(says_so, world.rank() == 0 && saved_at > 4) << what << text;
      EXPECT_TRUE(all_ranks_have(net_weights(*engine), world)) << what;
      EXPECT_TRUE(engine->optimizer()->exchange()->rank_state().tensors.empty()) << what;
      // Where 0/1 Adam exchanges next, all ranks have the same weights again.
      train_zeropp(*engine, saved_at == 7 ? 5 : 4);
      EXPECT_TRUE(all_ranks_have(net_weights(*engine), world)) << what;
      EXPECT_TRUE(net_weights(*engine).isfinite().all().item<bool>()) << what;
    });
  });
}

TEST(OneBitResume, KeepsTheNumbersOfLambFromStageToStage) {
  const TemporaryFolder folder;
  for (const auto& [from, to] : {std::pair{0, 1}, std::pair{1, 0}}) {
    run_ranks(2, [&, from = from, to = to](comm::World& world) {
      const auto engine = zeropp_engine(onebit_lamb(4, from), world);
      train_zeropp(*engine, 7);
      engine->save_checkpoint(folder.path());
      const auto resumed = zeropp_engine(onebit_lamb(4, to), world);
      resumed->load_checkpoint(folder.path());
      EXPECT_EQ(resumed->optimizer()->state().of(0).state.numbers,
                engine->optimizer()->state().of(0).state.numbers);
      // The ranks are as many, so that errors and all steps are too.
      EXPECT_EQ(train_zeropp(*resumed, 4), train_zeropp(*engine, 4));
    });
  }
}

TEST(OneBitResume, ChangesNeitherErrorsNorWeightsInAStepThatOverflows) {
  run_ranks(2, [](comm::World& world) {
    const Json fp16 = {{"fp16", {{"enabled", true}, {"initial_scale_power", 8}, {"hysteresis", 1}}}};
    const Json fp32 = Json::object(), bf16 = {{"bf16", {{"enabled", true}}}};
    for (const Json& config :
         {onebit_adam(3, 0, fp16), onebit_adam(3, 1, fp16), onebit_lamb(3, 0, fp16), onebit_lamb(3, 1, fp16),
          zero_one_adam(3, fp16), onebit_adam(3, 0, fp32), onebit_adam(3, 1, fp32), onebit_lamb(3, 0, fp32),
          onebit_lamb(3, 1, bf16), zero_one_adam(3, fp32), zero_one_adam(3, bf16)}) {
      const auto engine = zeropp_engine(config, world);
      train_zeropp(*engine, 8);
      const auto copies = [&] {
        zero::RankState state = engine->optimizer()->exchange()->rank_state();
        for (auto& [name, tensor] : state.tensors) tensor = tensor.clone();
        return state;
      };
      const zero::RankState before = copies();
      const at::Tensor weights = net_weights(*engine);
      EXPECT_FALSE(before.tensors.empty());
      const at::Tensor loss = engine->forward(zeropp_input(*engine, 3));
      engine->backward(world.rank() == 1 ? loss * std::numeric_limits<double>::infinity() : loss);
      log::set_level(log::Level::kInfo);
      ::testing::internal::CaptureStderr();
      engine->step();
      const std::string text = ::testing::internal::GetCapturedStderr();
      EXPECT_EQ(engine->skipped_steps(), 1) << config;
      EXPECT_TRUE(world.rank() != 0 || (text.find("' is not finite on rank 1") != std::string::npos &&
                                        text.find(" exchanges nothing in it") != std::string::npos))
          << text;
      expect_same_tensors(copies(), before, config.dump());
      EXPECT_TRUE(net_weights(*engine).equal(weights)) << config;
      EXPECT_TRUE(std::isfinite(train_zeropp(*engine, 4))) << config;
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
