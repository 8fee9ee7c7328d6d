#include "tests/equivalence/golden/golden_training.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <ATen/ops/abs.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "deepspeed/base/error.h"

#include "tests/places/places.h"

namespace deepspeed::testing {

namespace {

std::filesystem::path golden_folder() {
  return testing::source_folder() / "tests" / "golden" / "deepspeed_training";
}

at::Tensor read_floats(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    raise<IoError>("cannot read ", path.string());
  }
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  at::Tensor values = at::empty({bytes / static_cast<int64_t>(sizeof(float))}, at::kFloat);
  file.read(static_cast<char*>(values.data_ptr()), bytes);
  return values;
}

TinyGPTConfig model_config(const Json& json) {
  TinyGPTConfig config;
  config.vocabulary = json.at("vocabulary");
  config.context = json.at("context");
  config.width = json.at("width");
  config.layers = json.at("layers");
  config.heads = json.at("heads");
  return config;
}

}  // namespace

FormulaData GoldenTraining::data() const {
  return {world_size, micro_batch(), model.context, model.vocabulary};
}

std::shared_ptr<TinyGPT> GoldenTraining::make_model() const {
  auto gpt = std::make_shared<TinyGPT>(model);
  fill_parameters(*gpt, weight_scale);
  return gpt;
}

Json zero_config(int stage) {
  Json config = {{"stage", stage}};
  if (stage == 3) config["stage3_param_persistence_threshold"] = 0;
  return config;
}

GoldenTraining load_golden_training(const std::string& variant) {
  const std::filesystem::path path = golden_folder() / (variant + ".json");
  std::ifstream file(path);
  if (!file) {
    raise<IoError>("cannot read ", path.string());
  }
  const Json json = Json::parse(file);
  GoldenTraining golden;
  golden.model = model_config(json.at("model"));
  golden.weight_scale = json.at("weight_scale");
  golden.world_size = json.at("world_size");
  golden.num_steps = json.at("num_steps");
  golden.ds_config = json.at("ds_config");
  golden.first_micro_batch_loss = json.at("first_micro_batch_loss");
  golden.losses = json.at("losses").get<std::vector<std::vector<double>>>();
  golden.learning_rates = json.at("learning_rates").get<std::vector<double>>();
  golden.grad_norms = json.at("grad_norms");
  golden.parameters = read_floats(golden_folder() / json.at("parameters").get<std::string>());
  return golden;
}

at::Tensor load_golden_first_gradient() { return read_floats(golden_folder() / "first_gradient.bin"); }

at::Tensor flat_parameters(const torch::nn::Module& module) {
  std::vector<at::Tensor> parts;
  for (const auto& item : module.named_parameters()) {
    parts.push_back(item.value().detach().reshape({-1}));
  }
  return at::cat(parts);
}

Difference largest_loss_difference(const std::vector<std::vector<double>>& got,
                                   const std::vector<std::vector<double>>& expected) {
  if (got.size() != expected.size()) {
    return {INFINITY, message(got.size(), " steps, expected ", expected.size())};
  }
  Difference worst;
  for (size_t step = 0; step < got.size(); ++step) {
    for (size_t rank = 0; rank < expected[step].size(); ++rank) {
      const double difference =
          std::abs(got[step].at(rank) - expected[step][rank]) / std::abs(expected[step][rank]);
      // A NaN must not pass as small.
      if (!(difference <= worst.value)) {
        worst = {difference, message("step ", step, ", rank ", rank)};
      }
    }
  }
  return worst;
}

Difference largest_update_difference(const torch::nn::Module& initial, const at::Tensor& got,
                                     const at::Tensor& expected) {
  torch::NoGradGuard no_grad;
  if (got.numel() != expected.numel()) {
    return {INFINITY, message(got.numel(), " elements, expected ", expected.numel())};
  }
  Difference worst;
  int64_t start = 0;
  for (const auto& item : initial.named_parameters()) {
    const int64_t end = start + item.value().numel();
    const at::Tensor before = item.value().reshape({-1});
    const at::Tensor expected_update = expected.slice(0, start, end) - before;
    const at::Tensor update = got.slice(0, start, end) - before;
    const double difference =
        (update - expected_update).abs().max().item<double>() / expected_update.abs().max().item<double>();
    if (!(difference <= worst.value)) {
      worst = {difference, item.key()};
    }
    start = end;
  }
  return worst;
}

}  // namespace deepspeed::testing
