// One rank of a training of the model of tests/golden/deepspeed_checkpoints, for scripts that let this
// library and DeepSpeed go on from each other's checkpoints. Rank 0 prints the mean loss of each step, as
// JSON.
#include <cstdint>
#include <exception>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>

#include "deepspeed/initialize.h"
#include "deepspeed/launcher/program_main.h"

#include "tests/support/formula_training.h"
#include "tests/support/small_net.h"

namespace {

// As in small_training.py: the gradients of the first steps overflow in fp16.
constexpr double kSpike = 1e6;
constexpr int64_t kSpikedSteps = 2;

struct Options {
  std::string config, variant = "golden", load, resave, save;
  int64_t steps = 3, steps_after = 0, micro_batch = 4, context = 6, vocabulary = 7, width = 5;
  double weight_scale = 0.5;
};

deepspeed::Json train(const Options& options) {
  using namespace deepspeed;
  comm::World world = comm::init_distributed();
  const auto variant = deepspeed::testing::SmallNetVariant::named(options.variant);
  auto model = std::make_shared<deepspeed::testing::SmallNet>(options.vocabulary, options.width, variant);
  deepspeed::testing::fill_parameters(*model, options.weight_scale);
  const auto groups = deepspeed::testing::small_net_groups(*model, variant);
  const auto engine =
      initialize(model, {.config = options.config, .model_parameters = groups, .world = world}).engine;
  if (!options.load.empty() && engine->load_checkpoint(options.load).path.empty())
    raise<CheckpointError>("nothing was loaded from ", options.load);
  if (!options.resave.empty()) engine->save_checkpoint(options.resave);
  const deepspeed::testing::FormulaData data{world.size(), options.micro_batch, options.context,
                                             options.vocabulary};
  Json losses = Json::array();
  const auto steps = [&](int64_t number) {
    for (const int64_t last = engine->global_steps() + number; engine->global_steps() < last;) {
      const auto batch = data.batch(engine->global_steps(), world.rank());
      const at::Tensor loss = engine->forward(batch.tokens, batch.targets);
      const bool spiked = engine->config().fp16.enabled && engine->config().zero_optimization.stage > 0 &&
                          engine->global_steps() < kSpikedSteps;
      engine->backward(spiked ? loss * kSpike : loss);
      engine->step();
      losses.push_back(world.group().all_reduce_scalar(loss.item<double>()) / world.size());
    }
  };
  steps(options.steps);
  if (!options.save.empty()) engine->save_checkpoint(options.save);
  steps(options.steps_after);
  const bool first = world.rank() == 0;
  world.shutdown();
  return first ? losses : Json();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One rank of a small training, for comparisons with DeepSpeed");
  Options options;
  app.add_option("--config", options.config, "The config as JSON")->required();
  app.add_option("--variant", options.variant, "golden, plain, frozen, shared or groups");
  app.add_option("--load", options.load, "A checkpoint folder to go on from");
  app.add_option("--resave", options.resave, "A checkpoint folder to save into before the first step");
  app.add_option("--save", options.save, "A checkpoint folder to save into after --steps");
  app.add_option("--steps", options.steps, "Steps to train");
  app.add_option("--steps_after", options.steps_after, "Steps to train after --save");
  app.add_option("--micro_batch", options.micro_batch, "Samples of a rank and step");
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  try {
    const deepspeed::Json losses = train(options);
    if (!losses.is_null()) std::cout << losses.dump() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "train_small_net: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
