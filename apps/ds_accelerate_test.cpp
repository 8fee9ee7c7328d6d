// ds_accelerate_test tries an Accelerator out: its values of all ranks, its loaders and a small training. It is what
// `ds_accelerate test` launches.
#include <algorithm>
#include <iostream>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include "deepspeed/accelerate.h"
#include "deepspeed/launcher/program_main.h"

namespace {

using namespace deepspeed::accelerate;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(8, 32));
    second = register_module("second", torch::nn::Linear(32, 1));
  }
  at::Tensor forward(const at::Tensor& x) { return second->forward(torch::tanh(first->forward(x))); }

  struct {
    int64_t hidden_size = 32;
  } config;
  torch::nn::Linear first{nullptr}, second{nullptr};
};
TORCH_MODULE(Net);

struct Samples {
  size_t size() const { return 101; }
  std::tuple<at::Tensor, at::Tensor, at::Tensor> get(size_t index) const {
    const at::Tensor x = torch::sin(torch::arange(8, torch::kFloat) * 0.5 + double(index));
    return {x, x.sum(0, true) * 0.1, torch::full({1}, static_cast<int64_t>(index), torch::kLong)};
  }
};

void expect(bool is_true, const std::string& what) {
  if (!is_true) deepspeed::raise<deepspeed::Error>(what);
}

void try_values(const Accelerator& accelerator) {
  const int ranks = accelerator.num_processes();
  const at::Tensor own =
      at::full({2}, accelerator.process_index(), at::TensorOptions(at::kLong).device(accelerator.device()));
  expect(accelerator.gather(own).sum().item<int64_t>() == int64_t{ranks} * (ranks - 1),
         "gather() lost values");
  expect(accelerator.reduce(own, "sum").sum().item<int64_t>() == int64_t{ranks} * (ranks - 1),
         "reduce() lost values");
  expect(accelerator.pad_across_processes(own.narrow(0, 0, 1)).size(0) == 1,
         "pad_across_processes() padded equal sizes");
  accelerator.print("values of all ranks: right");
}

/// Trains by what prepare() returned, and returns the first and the last loss.
template <class Model, class Optimizer, class Loader>
std::pair<double, double> train(Accelerator& accelerator, Model& model, Optimizer& optimizer,
                                Loader& loader) {
  double first = 0.0, last = 0.0;
  for (int epoch = 0; epoch < 5; ++epoch) {
    std::vector<int64_t> seen;
    double sum = 0.0;
    for (auto& [x, y, index] : *loader) {
      const auto micro_batch = accelerator.accumulate(model);
      const auto dtype = model->module().parameters().front().scalar_type();
      const at::Tensor output = model->forward(x.to(dtype)).to(torch::kFloat);
      const at::Tensor loss = torch::nn::functional::mse_loss(output, y);
      accelerator.backward(loss);
      optimizer->step();
      optimizer->zero_grad();
      sum += accelerator.reduce(loss.detach(), "mean").item<double>();
      const at::Tensor all = accelerator.gather_for_metrics(index).view({-1}).cpu();
      seen.insert(seen.end(), all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel());
    }
    std::sort(seen.begin(), seen.end());
    expect(seen.size() == 101 && seen.front() == 0 && seen.back() == 100,
           "the loaders did not give every sample once");
    (epoch == 0 ? first : last) = sum;
  }
  return {first, last};
}

/// Trains with the optimizer and the schedule of the config, or with its own where the config has none.
std::pair<double, double> try_training(Accelerator& accelerator) {
  const auto init = accelerator.zero3_init();
  const Net net;
  if (init) init->close();
  const auto samples = make_data_loader(Samples(), {.batch_size = 4, .shuffle = true});
  const PluginPtr plugin = accelerator.deepspeed_plugin();
  const deepspeed::Json config = plugin ? plugin->deepspeed_config() : deepspeed::Json::object();
  const bool has_scheduler = config.contains("scheduler");
  if (config.contains("optimizer")) {
    const auto adam = std::make_shared<DummyOptim>(net->parameters(), 1e-2);
    if (!has_scheduler) {
      auto [model, optimizer, loader] = accelerator.prepare(net, adam, samples);
      return train(accelerator, model, optimizer, loader);
    }
    auto [model, optimizer, loader, scheduler] =
        accelerator.prepare(net, adam, samples, std::make_shared<DummyScheduler>(adam, 130));
    return train(accelerator, model, optimizer, loader);
  }
  const auto adam =
      std::make_shared<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(1e-2));
  if (!has_scheduler) {
    auto [model, optimizer, loader] = accelerator.prepare(net, adam, samples);
    return train(accelerator, model, optimizer, loader);
  }
  auto [model, optimizer, loader, scheduler] =
      accelerator.prepare(net, adam, samples, std::make_shared<DummyScheduler>(adam, 130));
  return train(accelerator, model, optimizer, loader);
}

}  // namespace

int main() {
  return deepspeed::launcher::exit_of_work("ds_accelerate_test", [] {
    deepspeed::manual_seed(1);
    Accelerator accelerator;
    accelerator.print(AcceleratorState());
    try_values(accelerator);
    const auto [first, last] = try_training(accelerator);
    expect(last < first / 2,
           deepspeed::message("the loss went from ", first, " to ", last, ", expected less than half"));
    accelerator.print("training: the loss went from ", first, " to ", last);
    accelerator.end_training();
    deepspeed::comm::world().shutdown();
  });
}
