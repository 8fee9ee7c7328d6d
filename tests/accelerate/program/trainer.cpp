// Trains as tests/python/clients/programs/accelerate_twin.py does, on the same weights and data:
//   accelerate_trainer train|resume CASES.json FOLDER
// For each case it prints a line of JSON: its name, the losses before the state is saved, and those after it.
// `resume` loads what the other program has saved, and has the latter losses alone.
#include <fstream>
#include <iostream>
#include <sstream>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include "deepspeed/accelerate.h"
#include "deepspeed/accelerate/plugin/python_text.h"

namespace {

using deepspeed::Json;
using namespace deepspeed::accelerate;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(8, 16));
    second = register_module("second", torch::nn::Linear(16, 1));
    const torch::NoGradGuard no_grad;
    int64_t index = 0;
    for (auto& parameter : parameters()) {
      const auto values =
          torch::sin(torch::arange(parameter.numel(), torch::kDouble) * 0.37 + double(index++)) * 0.3;
      parameter.copy_(values.view(parameter.sizes()));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) { return second->forward(torch::tanh(first->forward(x))); }

  struct {
    int hidden_size = 16;
  } config;
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Net);

struct Samples {
  int64_t count = 0;

  size_t size() const { return static_cast<size_t>(count); }
  std::tuple<at::Tensor, at::Tensor> get(size_t index) const {
    const at::Tensor x = torch::sin(torch::arange(8, torch::kDouble) * 0.5 + double(index));
    return {x.to(torch::kFloat), (x.sum() * 0.1).to(torch::kFloat)};
  }
};

/// Trains one epoch and returns the mean losses of the ranks.
template <class Model, class Loader>
std::vector<double> train(Accelerator& accelerator, Model& model, AcceleratedOptimizer& optimizer,
                          AcceleratedScheduler* scheduler, Loader& loader) {
  std::vector<double> losses;
  for (auto& [x, y] : loader) {
    const auto micro_batch = accelerator.accumulate(model);
    const auto dtype = model->module().parameters().front().scalar_type();
    const at::Tensor output = model->forward(x.to(dtype)).squeeze(1).to(torch::kFloat);
    const at::Tensor loss = torch::nn::functional::mse_loss(output, y);
    accelerator.backward(loss);
    optimizer.step();
    if (scheduler) scheduler->step();
    optimizer.zero_grad();
    losses.push_back(accelerator.reduce(loss.detach(), "mean").template item<double>());
  }
  return losses;
}

/// Counts its calls, as a registered object.
struct Counter {
  int64_t value = 0;
  deepspeed::checkpoint::Dict state_dict() const { return {{"value", value}}; }
  void load_state_dict(const deepspeed::checkpoint::Dict& state) { value = state.at("value").as_int(); }
};

Json run(const std::string& mode, const Json& given, const std::string& folder) {
  AcceleratorState::reset();
  const auto plugin = std::make_shared<DeepSpeedPlugin>(
      DeepSpeedPluginArguments{.hf_ds_config = HfDeepSpeedConfig(given["config"])});
  Accelerator accelerator({.mixed_precision = given["precision"].get<std::string>(),
                           .gradient_accumulation_steps = given["gas"].get<int>(),
                           .dataloader_config = {.split_batches = given["split"].get<bool>(), .data_seed = 5},
                           .deepspeed_plugin = plugin});
  const Net net;
  const auto shuffled =
      make_data_loader(Samples{given["samples"].get<int64_t>()}, {.batch_size = 4, .shuffle = true});
  const auto plain = make_data_loader(Samples{20}, {.batch_size = 4});
  const int64_t total = given["total"].get<int64_t>();
  const std::string kind = given["kind"];
  std::shared_ptr<deepspeed::DeepSpeedEngine<NetImpl>> engine;
  std::shared_ptr<AcceleratedOptimizer> optimizer;
  std::shared_ptr<AcceleratedScheduler> scheduler;
  const auto keep = [&](auto prepared) {
    engine = std::get<0>(prepared);
    optimizer = std::get<1>(prepared);
    scheduler = std::get<2>(prepared);
  };
  const auto own = std::make_shared<torch::optim::AdamW>(net->parameters(),
                                                         torch::optim::AdamWOptions(1e-2).weight_decay(0.01));
  const auto dummy = std::make_shared<DummyOptim>(net->parameters(), 1e-2, 0.01);
  if (kind == "config, config")
    keep(accelerator.prepare(net, dummy, std::make_shared<DummyScheduler>(dummy, total, 2), shuffled, plain));
  else if (kind == "own, own")
    keep(accelerator.prepare(net, own, get_scheduler("linear", *own, 2, total), shuffled, plain));
  else if (kind == "own, config")
    keep(accelerator.prepare(net, own, std::make_shared<DummyScheduler>(own, total, 2), shuffled, plain));
  else
    keep(accelerator.prepare(net, dummy,
                             std::make_shared<DummyScheduler>(dummy, total, 2,
                                                              [=](torch::optim::Optimizer& made) {
                                                                return get_scheduler("linear", made, 2,
                                                                                     total);
                                                              }),
                             shuffled, plain));
  Counter counter{7};
  accelerator.register_for_checkpointing(counter);
  Json result = {{"name", given["name"]}};
  const std::string saved = folder + "/" + given["file"].get<std::string>();
  if (mode == "train") {
    result["before"] = train(accelerator, engine, *optimizer, scheduler.get(), *shuffled);
    accelerator.save_state(saved);
  } else {
    counter.value = 0;
    accelerator.load_state(saved);
  }
  result["counter"] = counter.value;
  result["lr"] = scheduler->get_last_lr();
  result["after"] = train(accelerator, engine, *optimizer, scheduler.get(), *plain);
  result["config"] = python_repr(plugin->deepspeed_config());
  return result;
}

}  // namespace

int main(int, char** argv) {
  std::ifstream file(argv[2]);
  std::stringstream text;
  text << file.rdbuf();
  for (const Json& given : Json::parse(text.str())) {
    const Json result = run(argv[1], given, argv[3]);
    if (AcceleratorState().is_main_process()) std::cout << result.dump() << std::endl;
  }
  AcceleratorState().world();
  deepspeed::comm::world().shutdown();
}
