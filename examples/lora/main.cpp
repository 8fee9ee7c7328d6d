// Fine-tunes the adapters of a network whose base is frozen, and saves them alone:
//   deepspeed --num_procs 2 lora --deepspeed_config ds_config.json --save_dir out
// A SIGTERM to the launcher makes it save and end; --resume goes on.
#include <cstdio>
#include <exception>
#include <filesystem>

#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include <CLI/CLI.hpp>

#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/deepspeed.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/engine/assembly/initialize_options.h"
#include "deepspeed/launcher/program_main.h"

#include "lora.h"

namespace {

namespace fs = std::filesystem;

struct Options {
  deepspeed::ConfigArguments config;
  std::string save_dir;
  std::string resume;
  std::string adapters;  // a file of adapters to start from
  int64_t steps = 200;   // in all, those before a resume included
  int64_t rank = 2;      // the adapters' rank
};

// Data that the base was not trained for: the targets are a fixed rotation of tanh(x).
struct Shifted {
  at::Tensor inputs, targets;
  explicit Shifted(int64_t count) {
    const deepspeed::device::SeededScope scope(11);
    inputs = at::randn({count, 16});
    targets = at::tanh(inputs).matmul(at::randn({16, 4}) * 0.5);
  }
  size_t size() const { return static_cast<size_t>(inputs.size(0)); }
  std::pair<at::Tensor, at::Tensor> get(size_t index) const {
    const auto row = static_cast<int64_t>(index);
    return {inputs[row], targets[row]};
  }
};

template <class Engine>
void save(Engine& engine, const fs::path& folder) {
  engine.save_checkpoint(folder, {.exclude_frozen_parameters = true});
  if (engine.rank() != 0) return;
  deepspeed::checkpoint::Dict adapters(/*ordered=*/true);
  for (const auto& [name, tensor] : engine.module_state_dict(/*exclude_frozen_parameters=*/true)) {
    adapters.set(name, tensor);
  }
  deepspeed::checkpoint::write_torch_archive(folder / "adapters.bin", std::move(adapters));
}

template <class Engine>
void load_adapters(Engine& engine, const fs::path& file) {
  const auto adapters = deepspeed::checkpoint::read_torch_archive(file);
  std::vector<deepspeed::NamedTensor> tensors;
  for (const auto& [name, tensor] : adapters.as_dict().items()) {
    tensors.push_back({name.as_string(), tensor.as_tensor()});
  }
  engine.load_module_state_dict(tensors, /*strict=*/false);
}

template <class Engine>
void train(Engine& engine, auto loader, int64_t steps) {
  deepspeed::RepeatingLoader batches(loader);
  while (engine.global_steps() < steps && !engine.preemption_requested()) {
    auto& [inputs, targets] = batches.next();
    const auto loss = torch::nn::functional::mse_loss(engine.forward(inputs), targets);
    const bool updates = engine.is_gradient_accumulation_boundary();
    engine.backward(loss);
    engine.step();
    if (!updates || engine.rank() != 0) continue;
    std::printf("step %d loss %.9g\n", static_cast<int>(engine.global_steps()), loss.template item<double>());
    std::fflush(stdout);
  }
}

void run(const Options& options) {
  auto world = deepspeed::comm::init_distributed();
  deepspeed::manual_seed(1);  // the base, random here, has the same weights in every run
  auto model = std::make_shared<lora::Network>(options.rank);
  const Shifted data(512);
  auto [engine, optimizer, loader, lr_scheduler] =
      deepspeed::initialize(model, data, {.config = options.config.config_path()});
  engine->install_preemption_handler();
  // The base is in neither file: what they lack stays as it was made above.
  if (!options.adapters.empty()) load_adapters(*engine, options.adapters);
  if (!options.resume.empty()) engine->load_checkpoint(options.resume, {.load_module_strict = false});

  train(*engine, loader, options.steps);
  if (!options.save_dir.empty()) save(*engine, options.save_dir);
  const torch::NoGradGuard no_grad;
  const auto loss = torch::nn::functional::mse_loss(engine->forward(data.inputs.to(engine->device())),
                                                    data.targets.to(engine->device()));
  if (world.rank() == 0) std::printf("loss on all data %.6f\n", loss.item<double>());
  world.shutdown();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Fine-tunes low-rank adapters of a frozen network with deepspeed.");
  Options options;
  deepspeed::add_config_arguments(app, options.config);
  app.add_option("--save_dir", options.save_dir, "folder for the checkpoint and adapters.bin");
  app.add_option("--resume", options.resume, "go on from the latest checkpoint in this folder");
  app.add_option("--adapters", options.adapters, "start from the adapters in this file");
  app.add_option("--steps", options.steps, "updates in all; 0: the loss alone")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--rank", options.rank, "of the adapters")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  return deepspeed::launcher::exit_of_work("lora", [&] { run(options); });
}
