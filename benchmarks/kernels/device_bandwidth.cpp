// Kernels that one pass over memory bounds: Adam, the update rules and the gradient's norm on the GPU (or the
// CPU, where there is none), as a share of what a copy on that device moves, beside torch's fused AdamW.
// Verified first.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <CLI/CLI.hpp>

#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/kernels/adam.h"
#include "deepspeed/kernels/grad_stats.h"
#include "deepspeed/kernels/update.h"
#include "deepspeed/launcher/program_main.h"

namespace {

namespace kernels = deepspeed::kernels;

struct Row {
  std::string name;
  double bytes;  // moved, an element
  std::function<void(int64_t step)> call;
};

kernels::AdamStep hyperparameters(int64_t step) {
  kernels::AdamStep s;
  s.weight_decay = 0.01;
  s.step = step;
  s.rounding_seed = static_cast<uint64_t>(step);
  return s;
}

std::function<void(int64_t)> torch_adamw(const at::Tensor& p, const at::Tensor& g) {
  const at::Tensor m = at::zeros_like(p), v = at::zeros_like(p);
  const at::Tensor count = at::zeros({}, p.options());
  return [=](int64_t) {
    std::vector<at::Tensor> params{p}, grads{g}, avgs{m}, squares{v}, steps{count};
    count.add_(1);
    at::_fused_adamw_(params, grads, avgs, squares, {}, steps, 1e-3, 0.9, 0.999, 0.01, 1e-8, false, false);
  };
}

std::function<void(int64_t)> our_adam(const kernels::AdamTensors& t) {
  return [t](int64_t step) { kernels::adam(t, hyperparameters(step)); };
}

bool agrees_with_torch(const at::Device& device) {
  const at::Tensor first = at::randn({100003}, device).mul_(0.02), g = at::randn({100003}, device);
  const at::Tensor p = first.clone();
  const auto theirs = torch_adamw(p, g);
  const kernels::AdamTensors t{first.clone(), g, at::zeros_like(g), at::zeros_like(g), {}};
  for (int64_t step = 1; step <= 10; ++step) {
    theirs(step);
    kernels::adam(t, hyperparameters(step));
  }
  const double worst = (p - t.master).abs().max().item<double>();
  const double moved = (p - first).abs().max().item<double>();
  std::printf("Adam's weights agree with torch's within %.1e, where they moved by %.1e\n", worst, moved);
  return worst < 1e-6 && moved > 1e-3;
}

/// Median seconds of a call. A read of `watched` waits for the device.
double time_of(const Row& row, const at::Tensor& watched, int64_t calls) {
  std::vector<double> seconds;
  int64_t step = 1;
  for (int round = 0; round < 9; ++round) {
    watched[0].item<float>();
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < calls; ++i) row.call(step++);
    watched[0].item<float>();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
                      static_cast<double>(calls));
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Kernels against the bandwidth of the device"};
  int64_t numel = 0, calls = 0;
  app.add_option("--numel", numel, "elements; 0: 2^28 on a GPU, 2^22 on a CPU");
  app.add_option("--calls", calls, "calls between two readings of the clock; 0: 10 on a GPU, 1 on a CPU");
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  const bool on_cuda = deepspeed::device::num_cuda_devices() > 0;
  const at::Device device(on_cuda ? at::kCUDA : at::kCPU);
  if (numel == 0) numel = int64_t{1} << (on_cuda ? 28 : 22);
  if (calls == 0) calls = on_cuda ? 10 : 1;
  const bool is_verified = agrees_with_torch(device);
  if (!is_verified) std::printf("UNVERIFIED: the weights differ, so the times may be of wrong work\n");

  const auto options = at::TensorOptions(device);
  const at::Tensor p = at::randn({numel}, options), g = at::randn({numel}, options);
  const at::Tensor m = at::zeros({numel}, options), v = at::zeros({numel}, options);
  const at::Tensor g16 = g.to(at::kBFloat16), low = at::zeros({numel}, options.dtype(at::kBFloat16));
  const at::Tensor m16 = at::zeros_like(low), v16 = at::zeros_like(low);
  kernels::LionRule lion;
  lion.gradient_scale = 1.0F, lion.beta1 = 0.9F, lion.one_minus_beta1 = 0.1F, lion.beta2 = 0.99F;
  lion.one_minus_beta2 = 0.01F, lion.lr = 1e-4F;
  const std::vector<Row> rows = {
      {"a copy of the device", 8, [&](int64_t) { m.copy_(g); }},
      {"torch's fused AdamW, fp32 gradients", 28, torch_adamw(p, g)},
      {"AdamW, fp32 gradients", 28, our_adam({p, g, m, v, {}})},
      {"AdamW, bf16 gradients, bf16 copy", 28, our_adam({p, g16, m, v, low})},
      {"AdamW, bf16 gradients, moments and copy", 20, our_adam({p, g16, m16, v16, low})},
      {"Lion, bf16 gradients, bf16 copy", 20,
       [&](int64_t) {
         kernels::update({p, g16, low, {{"exp_avg", m}}}, lion);
       }},
      {"norm of bf16 gradients", 2, [&](int64_t) { kernels::grad_stats(g16); }},
  };
  double limit = 0;
  std::printf("| kernel, %.0fM elements on %s | GB/s | of the copy |\n|---|---|---|\n",
              static_cast<double>(numel) / 1e6, on_cuda ? "the GPU" : "the CPU");
  for (const Row& row : rows) {
    m.zero_(), v.zero_(), m16.zero_(), v16.zero_();
    const double rate = row.bytes * static_cast<double>(numel) / time_of(row, p, calls) / 1e9;
    if (limit == 0) limit = rate;
    std::printf("| %s | %.0f | %.2f |\n", row.name.c_str(), rate, rate / limit);
  }
  return is_verified ? 0 : 1;
}
