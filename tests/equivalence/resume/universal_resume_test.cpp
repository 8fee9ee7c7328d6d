// A run that goes on from a universal checkpoint: at any stage, on any number of ranks, the next losses.
#include <filesystem>
#include <fstream>

#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/convert/universal.h"
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

using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

Json universal_config(int stage, const std::string& precision, bool round_robin = false) {
  Json config = moving_config(stage, precision, round_robin);
  config["checkpoint"]["load_universal"] = true;
  return config;
}

class UniversalResume : public ::testing::TestWithParam<Move> {};
INSTANTIATE_TEST_SUITE_P(Moves, UniversalResume,
                         ::testing::Values(Move{1, 2, 2, 3, "fp32"}, Move{1, 2, 0, 1, "fp32"},
                                           Move{0, 2, 2, 3, "fp32"}, Move{2, 4, 1, 1, "fp32"},
                                           Move{2, 3, 1, 2, "bf16"}, Move{0, 1, 2, 2, "bf16"},
                                           Move{1, 2, 0, 2, "bf16"}, Move{1, 2, 2, 3, "fp16"},
                                           Move{0, 1, 1, 2, "fp16"}, Move{2, 2, 1, 3, "fp32", true},
                                           Move{3, 2, 1, 3, "fp32"}, Move{1, 2, 3, 2, "fp32"},
                                           Move{3, 3, 3, 2, "bf16"}));

TEST_P(UniversalResume, HasTheSameLosses) {
  const Move move = GetParam();
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  const Json from = moving_config(move.from_stage, move.precision, move.round_robin);
  train_part(from, move.from_ranks, 5, "", path);
  checkpoint::convert_to_universal(folder / "global_step5", folder / "universal");
  const auto stayed = train_part(from, move.from_ranks, 10, path, "");
  fs::remove_all(folder / "global_step5");
  const auto moved = train_part(universal_config(move.to_stage, move.precision, move.round_robin),
                                move.to_ranks, 10, path, "");
  expect_the_losses_of_staying(moved, stayed, move.precision);
}

/// A universal checkpoint of two ranks at stage 1 after three steps.
class UniversalFolder : public ::testing::Test {
 protected:
  void prepare(const std::string& precision) {
    train_part(moving_config(1, precision), 2, 3, "", path_);
    checkpoint::convert_to_universal(folder_ / "global_step3", tag_);
  }
  static auto engine_of(const Json& config) {
    return initialize(std::make_shared<OddNet>(), {.config = config}).engine;
  }
  std::string complaint() {
    const auto engine = engine_of(universal_config(2, "fp32"));
    const at::Tensor before = engine->module().parameters().front().detach().clone();
    const std::string text = error_of<CheckpointError>([&] { engine->load_checkpoint(path_); });
    EXPECT_TRUE(at::equal(engine->module().parameters().front(), before));
    return text;
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path().string();
  fs::path tag_ = folder_ / "universal";
};

TEST_F(UniversalFolder, CarriesTheMastersIntoAnotherPrecision) {
  prepare("bf16");
  const at::Tensor master =
      checkpoint::read_torch_archive(checkpoint::universal_state_path(tag_, "first.weight", "fp32"))
          .as_dict()
          .at("param")
          .as_tensor();
  EXPECT_FALSE(at::equal(master.to(at::kBFloat16).to(at::kFloat), master));
  for (const int stage : {0, 1}) {
    const auto fp32 = engine_of(universal_config(stage, "fp32"));
    fp32->load_checkpoint(path_);
    EXPECT_TRUE(at::equal(fp32->module().named_parameters()["first.weight"], master)) << stage;
    const auto fp16 = engine_of(universal_config(stage, "fp16"));
    fp16->load_checkpoint(path_);
    EXPECT_TRUE(at::equal(fp16->module().named_parameters()["first.weight"], master.to(at::kHalf))) << stage;
  }
}

TEST_F(UniversalFolder, BringsFrozenParametersBuffersAndClientState) {
  {
    const auto engine = engine_of(moving_config(2, "fp32"));
    const c10::NoGradGuard no_grad;
    engine->module().named_parameters()["frozen"].fill_(0.5);
    engine->module().named_buffers()["counter"].fill_(7);
    engine->save_checkpoint(path_, {.tag = "first", .client_state = {{"epoch", 3}}});
  }
  checkpoint::convert_to_universal(folder_ / "first", tag_);
  const auto engine = engine_of(universal_config(1, "fp32"));
  const LoadResult loaded = engine->load_checkpoint(path_);
  EXPECT_EQ(loaded.client_state.at("epoch").as_int(), 3);
  EXPECT_EQ(loaded.client_state.size(),
            2U);  // and universal_checkpoint_info of the converter, as in DeepSpeed
  EXPECT_EQ(engine->module().named_parameters()["frozen"].sum().item<double>(), 2.5);
  EXPECT_EQ(engine->module().named_buffers()["counter"].sum().item<double>(), 14.0);
}

TEST_F(UniversalFolder, NamesWhatIsMissing) {
  prepare("fp32");
  fs::remove(checkpoint::universal_state_path(tag_, "gain", "exp_avg"));
  EXPECT_THAT(complaint(), AllOf(HasSubstr("zero/gain/exp_avg.pt"), HasSubstr("is missing")));
  fs::remove(checkpoint::manifest_path(tag_));  // as DeepSpeed's, without one
  EXPECT_THAT(complaint(), AllOf(HasSubstr("zero/gain/exp_avg.pt"), HasSubstr("is missing")));
  fs::remove_all(tag_ / "zero" / "gain");
  EXPECT_THAT(complaint(), AllOf(HasSubstr("zero/gain/fp32.pt"), HasSubstr("is missing")));
  fs::remove(checkpoint::universal_optimizer_path(tag_));
  EXPECT_THAT(complaint(), AllOf(HasSubstr("optimizer_state.pt"), HasSubstr("ds_to_universal")));
  fs::remove(folder_ / "latest_universal");
  EXPECT_THAT(complaint(), AllOf(HasSubstr("latest_universal"), HasSubstr("ds_to_universal")));
}

TEST_F(UniversalFolder, NamesTheAlteredFileAndTheShapeThatDoesNotFit) {
  prepare("fp32");
  const fs::path file = checkpoint::universal_state_path(tag_, "last.weight", "fp32");
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  const auto middle = std::streamoff(fs::file_size(file) / 2);
  stream.seekg(middle);
  const int byte = stream.get();
  stream.seekp(middle);
  stream.put(char(byte ^ 16));
  stream.close();
  EXPECT_THAT(complaint(), AllOf(HasSubstr("last.weight/fp32.pt"), HasSubstr("altered")));
  fs::remove(checkpoint::manifest_path(tag_));
  const fs::path other = checkpoint::universal_state_path(tag_, "first.weight", "fp32");
  fs::copy_file(other, file, fs::copy_options::overwrite_existing);
  EXPECT_THAT(complaint(), AllOf(HasSubstr("last.weight/fp32.pt"), HasSubstr("'zero/first.weight/fp32.pt'")));
  checkpoint::write_torch_archive(file, checkpoint::read_torch_archive(other));  // without a mark
  EXPECT_THAT(complaint(), AllOf(HasSubstr("[13, 7]"), HasSubstr("'last.weight' has [5, 13]")));
}

TEST_F(UniversalFolder, IsNoTagOfItsOwnForOtherLoads) {
  prepare("fp32");
  EXPECT_EQ(checkpoint::find_complete_tags(path_), std::vector<std::string>{"global_step3"});
  const auto engine = engine_of(moving_config(1, "fp32"));
  EXPECT_THAT(error_of<CheckpointError>([&] { engine->load_checkpoint(path_, {.tag = "universal"}); }),
              HasSubstr("checkpoint.load_universal = true"));
}

}  // namespace
}  // namespace deepspeed::testing
