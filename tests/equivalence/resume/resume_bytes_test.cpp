// What a resume reads of the optimizer's files, over all ranks together.
#include <memory>
#include <numeric>
#include <string>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>

#include <gtest/gtest.h>

#include "deepspeed/checkpoint/file/file_reader.h"
#include "deepspeed/initialize.h"

#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

constexpr int64_t kWide = 2800;
constexpr int64_t kWideNumel = kWide * kWide + kWide;

// Large beside the pieces of a file that a checksum covers, and beside what each rank reads of each file to
// find its parts.
class WideNet : public torch::nn::Module {
 public:
  WideNet() { layer_ = register_module("layer", torch::nn::Linear(kWide, kWide)); }
  at::Tensor forward(const at::Tensor& input) { return layer_->forward(input).square().mean(); }

 private:
  torch::nn::Linear layer_{nullptr};
};

auto make_wide_engine(const comm::World& world) {
  const Json config = {{"train_micro_batch_size_per_gpu", 1},
                       {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.001}}}}},
                       {"zero_optimization", {{"stage", 2}}}};
  return initialize(std::make_shared<WideNet>(), {.config = config, .world = world}).engine;
}

// Returns the bytes that a load reads for the optimizer's states: those beyond a load without states.
int64_t optimizer_bytes(int world_size, const std::string& folder, bool verify_first = false) {
  const auto texts = run_ranks_collect(world_size, [&](comm::World& world) {
    const auto engine = make_wide_engine(world);
    const auto start = int64_t(checkpoint::FileReader::bytes_read_by_process());
    engine->load_checkpoint(folder, {.load_optimizer_states = false, .verify_first = verify_first});
    const auto between = int64_t(checkpoint::FileReader::bytes_read_by_process());
    engine->load_checkpoint(folder, {.verify_first = verify_first});
    const auto end = int64_t(checkpoint::FileReader::bytes_read_by_process());
    return std::to_string((end - between) - (between - start));
  });
  return std::accumulate(texts.begin(), texts.end(), int64_t{0},
                         [](int64_t sum, const std::string& text) { return sum + std::stoll(text); });
}

TEST(ResumeElsewhereBytes, AreAtMostATenthMoreThanOnTheSameRanks) {
  const TemporaryFolder folder;
  const std::string path = folder.path().string();
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_wide_engine(world);
    engine->backward(engine->forward(torch::ones({1, kWide})));
    engine->step();
    engine->save_checkpoint(path);
  });
  const int64_t same = optimizer_bytes(2, path);
  EXPECT_GT(same, 3 * 4 * kWideNumel);  // masters and two moments
  EXPECT_LT(same, 3.3 * 4 * kWideNumel);
  EXPECT_LT(optimizer_bytes(2, path, /*verify_first=*/true), 2.1 * double(same));
  for (const int ranks : {1, 3, 4}) {
    EXPECT_LT(double(optimizer_bytes(ranks, path)), 1.1 * double(same)) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace deepspeed::testing
