// Checkpoints of MiCS: which files there are, who reads them, and that a training goes on from them.
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/checkpoint/convert/universal.h"
#include "deepspeed/checkpoint/convert/zero_to_fp32.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/initialize.h"

#include "tests/equivalence/offload/moving_training.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

namespace fs = std::filesystem;

struct MicsMove {
  int from_ranks, from_shards, to_ranks, to_shards;  // 0 shards: without MiCS
  const char* precision;
  int to_stage = 3;
};

std::ostream& operator<<(std::ostream& out, const MicsMove& move) {
  return out << move.from_shards << " of " << move.from_ranks << " to " << move.to_shards << " of "
             << move.to_ranks << " at stage " << move.to_stage << " " << move.precision;
}

Json mics_moving_config(int shard_size, const std::string& precision, int stage = 3) {
  Json config = moving_config(stage, precision);
  if (shard_size > 0) config["zero_optimization"]["mics_shard_size"] = shard_size;
  return config;
}

class MicsResume : public ::testing::TestWithParam<MicsMove> {};
INSTANTIATE_TEST_SUITE_P(Moves, MicsResume,
                         ::testing::Values(MicsMove{4, 2, 4, 2, "fp32"}, MicsMove{4, 2, 4, 1, "fp32"},
                                           MicsMove{4, 1, 4, 4, "fp32"}, MicsMove{4, 2, 2, 2, "fp32"},
                                           MicsMove{2, 1, 4, 2, "fp32"}, MicsMove{4, 2, 3, 0, "fp32"},
                                           MicsMove{3, 0, 4, 2, "fp32"}, MicsMove{4, 2, 2, 0, "fp32", 1},
                                           MicsMove{4, 2, 1, 0, "fp32", 0}, MicsMove{4, 2, 4, 1, "bf16"},
                                           MicsMove{4, 1, 3, 3, "fp16"}));

TEST_P(MicsResume, HasTheSameLosses) {
  const MicsMove move = GetParam();
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  const Json from = mics_moving_config(move.from_shards, move.precision);
  train_part(from, move.from_ranks, 5, "", path);
  const auto stayed = train_part(from, move.from_ranks, 10, path, "");
  const auto moved = train_part(mics_moving_config(move.to_shards, move.precision, move.to_stage),
                                move.to_ranks, 10, path, "");
  expect_the_losses_of_staying(moved, stayed, move.precision);
}

TEST(MicsCheckpoint, ResumesBitEquallyOnItsOwnRanks) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  for (const int shard_size : {1, 2}) {
    const Json config = mics_moving_config(shard_size, "fp32");
    train_part(config, 4, 3, "", path);
    const auto whole = train_part(config, 4, 6, "", "");
    const auto resumed = train_part(config, 4, 3, path, "");
    EXPECT_EQ(resumed, std::vector<double>(whole.begin() + 3, whole.end())) << shard_size;
  }
}

std::vector<std::string> names_of_files(const fs::path& tag) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(tag)) names.push_back(entry.path().filename());
  std::ranges::sort(names);
  return names;
}

TEST(MicsCheckpoint, IsWrittenOnceByTheFirstBlock) {
  const TemporaryFolder folder;
  train_part(mics_moving_config(2, "bf16"), 4, 1, "", folder.path().string());
  std::vector<std::string> expected = {"manifest.json"};
  for (int rank = 0; rank < 2; ++rank) {
    expected.push_back(message("bf16_zero_pp_rank_", rank, "_mp_rank_00_optim_states.pt"));
    expected.push_back(message("zero_pp_rank_", rank, "_mp_rank_00_model_states.pt"));
  }
  for (int rank = 0; rank < 4; ++rank)
    expected.push_back(message("rng_states_rank_", rank, "_mp_rank_00.pt"));
  std::ranges::sort(expected);
  EXPECT_EQ(names_of_files(folder.path() / "global_step1"), expected);
}

TEST(MicsCheckpoint, IsReadByZeroToFp32AndAsUniversal) {
  for (const int shard_size : {1, 2}) {
    const TemporaryFolder folder;
    const std::string path = folder.path().string();
    const Json config = mics_moving_config(shard_size, "fp32");
    train_part(config, 4, 2, "", path);
    run_ranks(2, [&](comm::World& world) {
      if (world.rank() == 0) {
        checkpoint::convert_to_universal(folder / "global_step2", folder / "universal");
        checkpoint::write_latest_universal(folder.path(), "universal");
      }
      world.group().barrier();
      Json other = mics_moving_config(0, "fp32", 2);
      const auto loaded = initialize(std::make_shared<OddNet>(), {.config = other, .world = world}).engine;
      loaded->load_checkpoint(path);
      other["checkpoint"] = {{"load_universal", true}};
      const auto universal = initialize(std::make_shared<OddNet>(), {.config = other, .world = world}).engine;
      universal->load_checkpoint(path);
      const auto found = checkpoint::get_fp32_state_dict_from_zero_checkpoint(path);
      for (const auto& item : loaded->module().named_parameters()) {
        if (!item.value().requires_grad()) continue;
        const auto entry = std::ranges::find(found, item.key(), &NamedTensor::name);
        ASSERT_NE(entry, found.end()) << item.key();
        EXPECT_TRUE(at::equal(entry->tensor, item.value())) << item.key();
        const at::Tensor other_param = universal->module().named_parameters()[item.key()];
        EXPECT_TRUE(at::equal(other_param, item.value())) << item.key();
        for (const char* state : {"exp_avg", "exp_avg_sq"}) {
          EXPECT_TRUE(at::equal(safe_get_full_optimizer_state(*universal, other_param, state),
                                safe_get_full_optimizer_state(*loaded, item.value(), state)));
        }
      }
    });
  }
}

TEST(MicsCheckpoint, IsLoadedWithoutStates) {
  const TemporaryFolder folder;
  run_ranks(4, [&](comm::World& world) {
    Json config = mics_moving_config(2, "fp32");
    config["zero_optimization"]["stage3_gather_16bit_weights_on_model_save"] = true;
    const auto engine = initialize(std::make_shared<OddNet>(), {.config = config, .world = world}).engine;
    engine->save_16bit_model(folder / "weights");
    engine->save_checkpoint(folder.path());
    const auto other =
        initialize(std::make_shared<OddNet>(0.0, 7), {.config = config, .world = world}).engine;
    other->load_checkpoint(folder.path(), {.load_optimizer_states = false});
    for (const auto& item : engine->module().named_parameters()) {
      if (!item.value().requires_grad()) continue;
      const at::Tensor expected = safe_get_full_fp32_param(*engine, item.value());
      const at::Tensor loaded =
          safe_get_full_fp32_param(*other, other->module().named_parameters()[item.key()]);
      EXPECT_TRUE(at::equal(loaded, expected)) << item.key();
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
