#include "tests/equivalence/offload/moving_training.h"

#include <cmath>
#include <memory>
#include <sstream>

#include <gtest/gtest.h>

#include "deepspeed/initialize.h"

#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {

Json moving_config(int stage, const std::string& precision, bool round_robin) {
  Json config = {{"train_batch_size", kGlobalBatch},
                 {"gradient_accumulation_steps", 1},
                 {"gradient_clipping", 0.0},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
                 {"scheduler", {{"type", "WarmupLR"}, {"params", {{"warmup_num_steps", 9}}}}},
                 {"zero_optimization", {{"stage", stage}, {"round_robin_gradients", round_robin}}}};
  if (precision != "fp32") config[precision] = {{"enabled", true}};
  if (precision == "fp16") config["fp16"]["initial_scale_power"] = 8;
  return config;
}

std::vector<double> train_part(const Json& config, int world_size, int64_t steps, const std::string& load,
                               const std::string& save) {
  const auto texts = run_ranks_collect(world_size, [&](comm::World& world) {
    const auto engine = initialize(std::make_shared<OddNet>(), {.config = config, .world = world}).engine;
    if (!load.empty()) engine->load_checkpoint(load);
    const auto type = engine->module().parameters().front().scalar_type();
    const int64_t micro = kGlobalBatch / world.size();
    std::string losses;
    for (const int64_t last = engine->global_steps() + steps; engine->global_steps() < last;) {
      const auto [inputs, targets] =
          odd_batch(kGlobalBatch * engine->global_steps() + micro * world.rank(), micro);
      const at::Tensor loss = engine->forward(inputs.to(type), targets);
      engine->backward(loss);
      engine->step();
      const double mean = world.group().all_reduce_scalar(loss.item<double>()) / world.size();
      losses += message(mean, " ");
    }
    if (!save.empty()) engine->save_checkpoint(save);
    return losses;
  });
  std::istringstream words(texts[0]);
  std::vector<double> losses;
  for (double loss = 0; words >> loss;) losses.push_back(loss);
  return losses;
}

std::ostream& operator<<(std::ostream& out, const Move& move) {
  return out << "stage " << move.from_stage << " x" << move.from_ranks << " to stage " << move.to_stage
             << " x" << move.to_ranks << " " << move.precision;
}

void expect_the_losses_of_staying(const std::vector<double>& moved, const std::vector<double>& stayed,
                                  const std::string& precision) {
  ASSERT_EQ(stayed.size(), 10U);
  ASSERT_EQ(moved.size(), 10U);
  const double tolerance = precision == "fp32" ? 1e-5 : 2e-2;
  for (size_t step = 0; step < stayed.size(); ++step) {
    EXPECT_NEAR(moved[step], stayed[step], tolerance * stayed[step]) << "step " << step;
  }
  // Not merely near because nothing is learned: without the moments the losses are others.
  EXPECT_GT(std::abs(stayed.back() - stayed.front()), 1e-3);
}

}  // namespace deepspeed::testing
