// Writes a checkpoint of ZeRO stage 2 in bf16, of a model of any size that never was in memory: what
// zero_to_fp32.py measures with.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <CLI/CLI.hpp>

#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/content/model_states.h"
#include "deepspeed/checkpoint/content/optimizer_states.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/launcher/program_main.h"

namespace {

namespace ckpt = deepspeed::checkpoint;

/// Numbers that a bf16 holds and that tell their place.
at::Tensor some_data(const at::Tensor& wanted) {
  return at::arange(wanted.numel(), at::kFloat).remainder_(251).to(wanted.scalar_type());
}

at::Tensor deferred(at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions().dtype(type).device(at::kMeta));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"A checkpoint of any size"};
  std::string folder;
  int64_t parameters = 100'000'000, width = 2048, ranks = 2;
  app.add_option("folder", folder)->required();
  app.add_option("--parameters", parameters, "elements of the model");
  app.add_option("--width", width, "each weight is (4 * width, width)");
  app.add_option("--ranks", ranks);
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  const std::string tag = "global_step1";
  const std::vector<int64_t> sizes = {4 * width, width};
  const int64_t numel = sizes[0] * sizes[1], layers = std::max<int64_t>(1, parameters / numel);
  std::filesystem::create_directories(std::filesystem::path(folder) / tag);

  ckpt::ModelStates model;
  model.dp_world_size = ranks;
  auto& shapes = model.states.param_shapes.emplace().emplace_back();
  for (int64_t layer = 0; layer < layers; ++layer) {
    const std::string name = "layers." + std::to_string(layer) + ".weight";
    model.states.module.emplace_back(name, deferred(sizes, at::kBFloat16));
    shapes.emplace_back(name, sizes);
  }
  ckpt::write_torch_archive(ckpt::model_states_path(folder, tag), ckpt::build_model_states(model), some_data);

  const int64_t partition = layers * numel / ranks;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    ckpt::ZeroOptimizerStates states;
    states.zero_stage = 2;
    auto& group = states.groups.emplace_back();
    group.fp32 = deferred({partition}, at::kFloat);
    group.partition_count = ranks;
    group.options = {{"lr", 1e-3}};
    ckpt::write_torch_archive(ckpt::optim_states_path(folder, tag, int(rank), 0, /*bf16=*/true),
                              ckpt::build_optimizer_states(states), some_data);
  }
  ckpt::write_latest(folder, tag);
  std::printf("%lld elements, the largest weight of %lld bytes\n", static_cast<long long>(layers * numel),
              static_cast<long long>(4 * numel));
  return 0;
}
