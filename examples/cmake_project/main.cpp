// The smallest training with deepspeed: fits y = 3x - 1 and prints what it found.
#include <iostream>

#include <torch/torch.h>

#include <deepspeed/base/version.h>
#include <deepspeed/deepspeed.h>

int main() {
  auto model = std::make_shared<torch::nn::LinearImpl>(1, 1);
  auto [engine, optimizer, loader, lr_scheduler] = deepspeed::initialize(
      model,
      {.config = R"({"train_batch_size": 32, "optimizer": {"type": "AdamW", "params": {"lr": 0.1}}})"});
  for (int step = 0; step < 200; ++step) {
    const auto x = torch::linspace(-1, 1, 32).unsqueeze(1).to(engine->device());
    const auto loss = torch::mse_loss(engine->forward(x), 3 * x - 1);
    engine->backward(loss);
    engine->step();
  }
  const double slope = model->weight.item<double>(), offset = model->bias.item<double>();
  std::cout << "deepspeed-cpp " << deepspeed::version() << ": y = " << slope << " x + " << offset << "\n";
  return std::abs(slope - 3) < 0.05 && std::abs(offset + 1) < 0.05 ? 0 : 1;
}
