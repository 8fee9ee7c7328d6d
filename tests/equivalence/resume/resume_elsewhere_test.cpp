// A run that goes on at another stage or on another number of ranks: the same global batches, the next
// losses.
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/manifest.h"
#include "deepspeed/initialize.h"

#include "tests/equivalence/offload/moving_training.h"
#include "tests/support/error_of.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ResumeElsewhere : public ::testing::TestWithParam<Move> {};
INSTANTIATE_TEST_SUITE_P(
    Moves, ResumeElsewhere,
    ::testing::Values(Move{1, 2, 1, 1, "fp32"}, Move{1, 2, 2, 3, "fp32"}, Move{2, 1, 2, 4, "fp32"},
                      Move{2, 4, 0, 2, "fp32"}, Move{0, 2, 2, 3, "fp32"}, Move{0, 1, 1, 4, "bf16"},
                      Move{1, 3, 0, 2, "bf16"}, Move{2, 2, 1, 4, "bf16"}, Move{0, 2, 2, 1, "fp16"},
                      Move{2, 3, 0, 1, "fp16"}, Move{2, 2, 2, 3, "fp32", true},
                      Move{1, 3, 0, 2, "bf16", true}, Move{3, 2, 3, 3, "fp32"}, Move{3, 3, 1, 2, "fp32"},
                      Move{3, 2, 0, 1, "fp32"}, Move{1, 2, 3, 3, "fp32"}, Move{0, 1, 3, 4, "fp32"},
                      Move{3, 4, 2, 1, "bf16"}, Move{2, 2, 3, 3, "bf16"}, Move{3, 2, 3, 1, "fp16"}));

TEST_P(ResumeElsewhere, HasTheSameLosses) {
  const Move move = GetParam();
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  const Json from = moving_config(move.from_stage, move.precision, move.round_robin);
  const Json to = moving_config(move.to_stage, move.precision, move.round_robin);
  train_part(from, move.from_ranks, 5, "", path);
  const auto stayed = train_part(from, move.from_ranks, 10, path, "");
  const auto moved = train_part(to, move.to_ranks, 10, path, "");
  expect_the_losses_of_staying(moved, stayed, move.precision);
}

void flip_bit(const fs::path& file, std::uintmax_t at) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(std::streamoff(at));
  const int byte = stream.get();
  stream.seekp(std::streamoff(at));
  stream.put(char(byte ^ 16));
}

class DamagedCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    const Json config = moving_config(2, "fp32");
    train_part(config, 2, 1, "", path_);
    train_part(config, 2, 1, path_, path_);
    ASSERT_EQ(checkpoint::find_complete_tags(path_),
              (std::vector<std::string>{"global_step2", "global_step1"}));
  }
  /// What both ranks complain of.
  std::string complaint() {
    const auto texts = run_ranks_collect(2, [&](comm::World& world) {
      const auto engine =
          initialize(std::make_shared<OddNet>(), {.config = moving_config(2, "fp32"), .world = world}).engine;
      return error_of<CheckpointError>([&] { engine->load_checkpoint(path_); });
    });
    EXPECT_NE(texts[0], "no error");
    EXPECT_NE(texts[1], "no error");
    return texts[0];
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path().string();
  fs::path tag_ = folder_.path() / "global_step2";
};

TEST_F(DamagedCheckpoint, NamesTheMissingFileAndTheTagThatIsWhole) {
  fs::remove(checkpoint::optim_states_path(path_, "global_step2", 1));
  EXPECT_THAT(complaint(), ::testing::AllOf(HasSubstr("zero_pp_rank_1_mp_rank_00_optim_states.pt"),
                                            HasSubstr("is missing"), HasSubstr("is 'global_step1'")));
}

TEST_F(DamagedCheckpoint, OffersTheWholeTagIfLatestNamesNone) {
  fs::remove_all(tag_);
  EXPECT_THAT(complaint(),
              ::testing::AllOf(HasSubstr("there is no tag 'global_step2' in the folder \"" + path_ + "\""),
                               HasSubstr("which has the tags 'global_step1'")));
}

TEST_F(DamagedCheckpoint, NamesTheTagsThatAreThereForOneThatIsNot) {
  run_ranks(2, [&](comm::World& world) {
    const auto engine =
        initialize(std::make_shared<OddNet>(), {.config = moving_config(2, "fp32"), .world = world}).engine;
    EXPECT_ERROR(CheckpointError, engine->load_checkpoint(path_, {.tag = "best"}), "no tag 'best'", path_,
                 "which has the tags 'global_step1', 'global_step2'", "takes the one given");
    EXPECT_ERROR(CheckpointError, engine->load_checkpoint(path_ + "/none", {.tag = "best"}), "no tag 'best'",
                 path_ + "/none", "which does not exist");
    for (const char* tag : {"../elsewhere", "/tmp", "..", "a/../../b", "."})
      EXPECT_ERROR(UsageError, engine->load_checkpoint(path_, {.tag = tag}), tag, "leads out of the folder");
  });
}

TEST_F(DamagedCheckpoint, SaysThatNoOtherTagIsWhole) {
  for (const char* tag : {"global_step1", "global_step2"})
    fs::remove(checkpoint::optim_states_path(path_, tag, 1));
  EXPECT_THAT(complaint(), HasSubstr("no other tag there is complete"));
}

TEST_F(DamagedCheckpoint, LoadsNothingWithoutLatestAndNamesTheNewestWholeTag) {
  fs::remove(checkpoint::latest_path(path_));
  const auto warning = [&] {
    return run_ranks_collect(1, [&](comm::World& world) {
      log::set_level(log::Level::kInfo);  // engines of tests before this one may have set another
      const auto engine =
          initialize(std::make_shared<OddNet>(), {.config = moving_config(2, "fp32"), .world = world}).engine;
      ::testing::internal::CaptureStderr();
      const LoadResult loaded = engine->load_checkpoint(path_);
      EXPECT_TRUE(loaded.path.empty());
      EXPECT_EQ(engine->global_steps(), 0);
      return ::testing::internal::GetCapturedStderr();
    })[0];
  };
  EXPECT_THAT(warning(), ::testing::AllOf(HasSubstr("no `latest`"), HasSubstr("is 'global_step2'")));
  fs::remove(checkpoint::model_states_path(path_, "global_step2"));
  EXPECT_THAT(warning(), HasSubstr("is 'global_step1'"));
  fs::remove_all(folder_ / "global_step1");
  EXPECT_THAT(warning(), ::testing::AllOf(HasSubstr("no `latest`"), ::testing::Not(HasSubstr("is '"))));
}

TEST_F(DamagedCheckpoint, NamesTheTornFile) {
  const fs::path file = checkpoint::model_states_path(path_, "global_step2");
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_THAT(complaint(), ::testing::AllOf(HasSubstr("mp_rank_00_model_states.pt"),
                                            HasSubstr("bytes, expected"), HasSubstr("is 'global_step1'")));
}

TEST_F(DamagedCheckpoint, NoticesEveryFlippedBitThatARankReads) {
  int seen = 0;
  for (const auto& entry : fs::directory_iterator(tag_)) {
    const auto size = fs::file_size(entry.path());
    for (const auto at : {size / 7, size / 2, size - 5}) {
      flip_bit(entry.path(), at);
      EXPECT_THAT(complaint(), HasSubstr("altered")) << entry.path() << " " << at;
      flip_bit(entry.path(), at);
      ++seen;
    }
  }
  EXPECT_EQ(seen, 6 * 3);  // model, two optimizers, two random states, the manifest
}

TEST_F(DamagedCheckpoint, LeavesTheEngineAsItWas) {
  flip_bit(checkpoint::model_states_path(path_, "global_step2"), 3000);
  run_ranks(2, [&](comm::World& world) {
    const auto engine =
        initialize(std::make_shared<OddNet>(), {.config = moving_config(2, "fp32"), .world = world}).engine;
    const at::Tensor before = engine->module().parameters().front().detach().clone();
    EXPECT_ERROR(CheckpointError, engine->load_checkpoint(path_),
                 "global_step2/mp_rank_00_model_states.pt\" is altered",
                 "the newest other tag that is complete is 'global_step1'",
                 "load_checkpoint() with this as its `tag` goes on from there");
    EXPECT_TRUE(at::equal(engine->module().parameters().front(), before));
    EXPECT_EQ(engine->global_steps(), 0);
    engine->load_checkpoint(path_, {.tag = "global_step1"});
    EXPECT_EQ(engine->global_steps(), 1);
  });
}

TEST(SavedTag, TakesThePlaceOfAnOlderOneOfItsNameWhole) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine =
        initialize(std::make_shared<OddNet>(), {.config = moving_config(1, "fp32"), .world = world}).engine;
    for (const char* note : {"first", "second"}) {
      engine->save_checkpoint(folder.path().string(), {.tag = "best", .client_state = {{"note", note}}});
      const LoadResult loaded = engine->load_checkpoint(folder.path().string());
      EXPECT_EQ(loaded.client_state.at("note").as_string(), note);
    }
    if (world.rank() != 0) return;
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder.path())) names.push_back(entry.path().filename());
    EXPECT_THAT(names, ::testing::UnorderedElementsAre("best", "latest", "zero_to_fp32.py", ".writers"));
  });
}

TEST(SavedTag, HoldsTheProgramsTensorsOfAnySize) {
  const TemporaryFolder folder;
  const auto engine = initialize(std::make_shared<OddNet>(), {.config = moving_config(1, "fp32")}).engine;
  const at::Tensor large = at::arange(100'000, at::kFloat);
  checkpoint::Dict inner{{"large", large}, {"list", checkpoint::List{large.narrow(0, 0, 50'000), 3}}};
  engine->save_checkpoint(folder.path().string(), {.client_state = {{"inner", inner}}});
  const auto loaded = engine->load_checkpoint(folder.path().string()).client_state.at("inner").as_dict();
  EXPECT_TRUE(at::equal(loaded.at("large").as_tensor(), large));
  EXPECT_TRUE(at::equal(loaded.at("list").as_sequence()[0].as_tensor(), large.narrow(0, 0, 50'000)));
}

}  // namespace
}  // namespace deepspeed::testing
