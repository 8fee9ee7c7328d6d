// What bounds a step in host memory: Adam's rate on the host (bf16 gradients, fp32 master and moments, a bf16
// copy of the weights) and the rates of copies between the host's page-locked memory and the device; where
// there is no GPU, of copies within memory. Prints one line of JSON; benchmarks/gpu/compare_zero3.py holds
// offloaded steps against them.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <CLI/CLI.hpp>

#include "deepspeed/base/json.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/accelerator/host_memory.h"
#include "deepspeed/kernels/adam.h"
#include "deepspeed/launcher/program_main.h"

namespace {

/// The median of some calls, after a first one.
double seconds_of(const std::function<void()>& work) {
  constexpr int kCalls = 5;
  work();
  std::vector<double> seconds;
  for (int call = 0; call < kCalls; ++call) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    deepspeed::device::synchronize();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kCalls / 2];
}

double adam_seconds(int64_t numel) {
  deepspeed::kernels::AdamTensors tensors;
  tensors.master = at::ones({numel}, at::kFloat);
  tensors.gradient = at::ones({numel}, at::kBFloat16);
  tensors.exp_avg = at::zeros({numel}, at::kFloat);
  tensors.exp_avg_sq = at::zeros({numel}, at::kFloat);
  tensors.low_precision = at::empty({numel}, at::kBFloat16);
  deepspeed::kernels::AdamStep step;
  return seconds_of([&] {
    ++step.step;
    deepspeed::kernels::adam(tensors, step);
  });
}

}  // namespace

int main(int argc, char** argv) {
  int64_t numel = 1 << 27;
  CLI::App app("What bounds a step in host memory");
  app.add_option("--elements", numel, "Of Adam's arrays and of the copies, bf16");
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  const bool has_cuda = deepspeed::device::num_cuda_devices() > 0;
  const at::Tensor host = deepspeed::device::empty_host(numel, at::kBFloat16, true).fill_(1.0);
  const at::Tensor device =
      at::empty({numel}, at::TensorOptions().dtype(at::kBFloat16).device(has_cuda ? at::kCUDA : at::kCPU));
  const double bytes = 2.0 * double(numel);
  const double from_host = seconds_of([&] { device.copy_(host, /*non_blocking=*/true); });
  const double to_host = seconds_of([&] { host.copy_(device, /*non_blocking=*/true); });
  const deepspeed::Json result = {{"adam_elements_per_s", double(numel) / adam_seconds(numel)},
                                  {"bytes_to_host_per_s", bytes / to_host},
                                  {"bytes_from_host_per_s", bytes / from_host}};
  std::printf("%s\n", result.dump().c_str());
  return 0;
}
