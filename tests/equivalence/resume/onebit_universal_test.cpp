// Optimizers whose ranks exchange 1 bit an element go on from a universal checkpoint as from the checkpoint
// that it was made of.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/content/parameter_numbers.h"
#include "deepspeed/checkpoint/convert/universal.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/manifest.h"

#include "tests/equivalence/stages/onebit_training.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

namespace fs = std::filesystem;
using checkpoint::Dict;

constexpr int kFreezeStep = 4;

Json at_stage(const std::string& optimizer, int stage, const Json& patch) {
  if (optimizer == "OneBitAdam") return onebit_adam(kFreezeStep, stage, patch);
  if (optimizer == "OneBitLamb") return onebit_lamb(kFreezeStep, stage, patch);
  return zero_one_adam(kFreezeStep, patch);
}

Json universal(Json config) {
  config["checkpoint"]["load_universal"] = true;
  return config;
}

struct Moved {
  std::string optimizer;
  int from_stage, to_stage;
  Json patch = Json::object();
};

std::vector<Moved> moved_trainings() {
  const Json bf16 = {{"bf16", {{"enabled", true}}}};
  const Json fp16 = {{"fp16", {{"enabled", true}, {"initial_scale_power", 8}}}};
  std::vector<Moved> all = {{"ZeroOneAdam", 0, 0}, {"ZeroOneAdam", 0, 0, bf16}};
  for (const char* optimizer : {"OneBitAdam", "OneBitLamb"}) {
    for (const auto& [from, to] : {std::pair{0, 0}, {0, 1}, {1, 0}, {1, 1}})
      all.push_back({optimizer, from, to});
    all.push_back({optimizer, 0, 0, fp16});
    all.push_back({optimizer, 1, 1, bf16});
  }
  return all;
}

std::string describe(const Moved& moved, int saved_at) {
  return message(moved.optimizer, " from stage ", moved.from_stage, " to ", moved.to_stage, " ",
                 moved.patch.dump(), " after ", saved_at, " steps");
}

void save_universal(auto& engine, const std::string& path, const comm::World& world) {
  engine.save_checkpoint(path, {.tag = "saved"});
  world.group().barrier();
  if (world.rank() == 0) {
    checkpoint::convert_to_universal(fs::path(path) / "saved", fs::path(path) / "universal");
    fs::remove_all(fs::path(path) / "saved");
  }
  world.group().barrier();
}

TEST(OneBitUniversal, HasTheBitsOfAnUninterruptedTraining) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    int number = 0;
    for (const Moved& moved : moved_trainings()) {
      for (const int saved_at : {2, 4, 7}) {
        const std::string what = describe(moved, saved_at),
                          path = (folder / std::to_string(number++)).string();
        const auto engine = zeropp_engine(at_stage(moved.optimizer, moved.from_stage, moved.patch), world);
        train_zeropp(*engine, saved_at);
        save_universal(*engine, path, world);
        const auto resumed =
            zeropp_engine(universal(at_stage(moved.optimizer, moved.to_stage, moved.patch)), world);
        resumed->load_checkpoint(path);
        EXPECT_TRUE(net_weights(*resumed).equal(net_weights(*engine))) << what;
        EXPECT_EQ(train_zeropp(*resumed, 6), train_zeropp(*engine, 6)) << what;
        EXPECT_TRUE(net_weights(*resumed).equal(net_weights(*engine))) << what;
      }
    }
  });
}

TEST(OneBitUniversal, BeginsWithoutErrorsOnOtherRanksAndSaysSo) {
  const TemporaryFolder folder;
  const std::vector<Moved> trainings = moved_trainings();
  const auto path = [&](size_t index) { return (folder / std::to_string(index)).string(); };
  run_ranks(2, [&](comm::World& world) {
    for (size_t index = 0; index < trainings.size(); ++index) {
      const Moved& moved = trainings[index];
      const auto engine = zeropp_engine(at_stage(moved.optimizer, moved.from_stage, moved.patch), world);
      train_zeropp(*engine, 7);
      save_universal(*engine, path(index), world);
    }
  });
  run_ranks(3, [&](comm::World& world) {
    log::set_level(log::Level::kInfo);
    for (size_t index = 0; index < trainings.size(); ++index) {
      const Moved& moved = trainings[index];
      const std::string what = describe(moved, 7);
      const auto engine =
          zeropp_engine(universal(at_stage(moved.optimizer, moved.to_stage, moved.patch)), world);
      ::testing::internal::CaptureStderr();
      engine->load_checkpoint(path(index));
      const std::string text = ::testing::internal::GetCapturedStderr();
      const bool says_so =
          text.find("the checkpoint has those of 2 ranks, the engine has 3") != std::string::npos;
      EXPECT_EQ(says_so, world.rank() == 0) << what << text;
      EXPECT_TRUE(all_ranks_have(net_weights(*engine), world)) << what;
      train_zeropp(*engine, 5);
      EXPECT_TRUE(all_ranks_have(net_weights(*engine), world)) << what;
      EXPECT_TRUE(net_weights(*engine).isfinite().all().item<bool>()) << what;
    }
  });
}

TEST(OneBitUniversal, KeepsTheNumbersOfLambOnOtherRanks) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World& world) {
    const auto engine = zeropp_engine(onebit_lamb(kFreezeStep, 1), world);
    train_zeropp(*engine, 7);
    save_universal(*engine, folder.path(), world);
  });
  const Dict common =
      checkpoint::read_torch_archive(checkpoint::universal_optimizer_path(folder / "universal")).as_dict();
  const auto numbers = checkpoint::parse_parameter_numbers(common.at(checkpoint::kParameterNumbers));
  ASSERT_EQ(numbers.size(), 3U);
  for (const int stage : {0, 1}) {
    run_ranks(2, [&](comm::World& world) {
      const auto engine = zeropp_engine(universal(onebit_lamb(kFreezeStep, stage)), world);
      engine->load_checkpoint(folder.path());
      const auto& params = engine->optimizer()->param_groups()[0].param_names;
      const auto own = engine->optimizer()->state().of(0).state.numbers;
      ASSERT_EQ(own.size(), 3U);
      for (const auto& [name, values] : own) {
        for (size_t param = 0; param < params.size(); ++param)
          EXPECT_EQ(values[param], numbers.at(name).at(params[param])) << name << " of " << params[param];
      }
    });
  }
}

// A universal checkpoint of DeepSpeed's converter has states of Adam alone.
TEST(OneBitUniversal, NamesTheNumbersThatAreMissing) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World& world) {
    const auto saved = zeropp_engine(onebit_lamb(kFreezeStep, 1), world);
    train_zeropp(*saved, 7);
    save_universal(*saved, folder.path(), world);
    const fs::path file = checkpoint::universal_optimizer_path(folder / "universal");
    const auto engine = zeropp_engine(universal(onebit_lamb(kFreezeStep, 1)), world);
    const Dict common = checkpoint::read_torch_archive(file).as_dict();
    Dict partial = common, none;
    auto numbers = checkpoint::parse_parameter_numbers(common.at(checkpoint::kParameterNumbers));
    numbers.at("last_factor").erase("bias");
    partial.set(checkpoint::kParameterNumbers, checkpoint::build_parameter_numbers(numbers));
    for (const auto& [key, value] : common.items()) {
      if (key.as_string() != checkpoint::kParameterNumbers) none.items().emplace_back(key, value);
    }
    fs::remove(checkpoint::manifest_path(folder / "universal"));
    checkpoint::write_torch_archive(file, partial);
    EXPECT_ERROR(CheckpointError, engine->load_checkpoint(folder.path()), "'last_factor'", "none of 'bias'",
                 "load_optimizer_states = false");
    checkpoint::write_torch_archive(file, none);
    EXPECT_ERROR(CheckpointError, engine->load_checkpoint(folder.path()), "'lamb_coeff_freeze'",
                 "ds_to_universal", "load_optimizer_states = false");
    engine->load_checkpoint(folder.path(), {.load_optimizer_states = false});
    EXPECT_TRUE(net_weights(*engine).equal(net_weights(*saved)));
  });
}

}  // namespace
}  // namespace deepspeed::testing
