// CPU AdamW: this project's kernel, with fp32 and bf16 moments, against torch's fused AdamW and torch's plain
// C++ one. Verifies first that all give the same weights, then times them in turns, so that a change of the
// machine's pace meets all alike. With --serve another program decides whose turn it is: see
// compare_cpu_adam.py.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/optim/adamw.h>

#include <CLI/CLI.hpp>

#include "deepspeed/kernels/adam.h"
#include "deepspeed/kernels/split_master.h"
#include "deepspeed/launcher/program_main.h"

namespace {

using deepspeed::kernels::AdamStep;
using deepspeed::kernels::AdamTensors;

struct Contender {
  std::string name;
  double bytes_per_element;
  std::function<void(int64_t step)> update;
  at::Tensor weights;
  std::vector<double> seconds;
  std::function<at::Tensor()> joined = nullptr;  // the weights, where `weights` is undefined
};

AdamStep hyperparameters(int64_t step) {
  AdamStep s;
  s.weight_decay = 0.01;
  s.step = step;
  s.rounding_seed = static_cast<uint64_t>(step);
  return s;
}

Contender ours(const std::string& name, const at::Tensor& weights, const at::Tensor& gradient,
               at::ScalarType moments, bool copy) {
  const int64_t n = weights.numel();
  AdamTensors t{weights.clone(), gradient, at::zeros({n}, moments), at::zeros({n}, moments), {}};
  if (copy) t.low_precision = at::zeros({n}, at::kBFloat16);
  const double bytes = 8 + static_cast<double>(gradient.element_size()) +
                       4 * static_cast<double>(t.exp_avg.element_size()) + (copy ? 2 : 0);
  return {
      name, bytes, [t](int64_t step) { deepspeed::kernels::adam(t, hyperparameters(step)); }, t.master, {}};
}

// Weights of bf16 that are the masters, as they are without any in fp32.
Contender ours_narrow(const std::string& name, const at::Tensor& weights, const at::Tensor& gradient) {
  const int64_t n = weights.numel();
  const AdamTensors t{
      weights.to(at::kBFloat16), gradient, at::zeros({n}, at::kBFloat16), at::zeros({n}, at::kBFloat16), {}};
  const double bytes = 4 + static_cast<double>(gradient.element_size()) + 8;
  return {
      name, bytes, [t](int64_t step) { deepspeed::kernels::adam(t, hyperparameters(step)); }, t.master, {}};
}

// What the masters hold is joined where it is compared.
Contender ours_split(const std::string& name, const at::Tensor& weights, const at::Tensor& gradient) {
  const int64_t n = weights.numel();
  const at::Tensor upper = at::empty({n}, at::kBFloat16), lower = at::empty({n}, at::kShort);
  deepspeed::kernels::split_master(weights, upper, lower);
  const AdamTensors t{lower, gradient, at::zeros({n}), at::zeros({n}), upper};
  const double bytes = 8 + static_cast<double>(gradient.element_size()) + 16;
  Contender contender{
      name, bytes, [t](int64_t step) { deepspeed::kernels::adam(t, hyperparameters(step)); }, {}, {}};
  contender.joined = [t] { return deepspeed::kernels::join_master(t.low_precision, t.master); };
  return contender;
}

Contender torch_fused(const at::Tensor& weights, const at::Tensor& gradient) {
  const at::Tensor p = weights.clone(), m = at::zeros_like(p), v = at::zeros_like(p);
  const auto update = [=](int64_t step) {
    at::Tensor s = at::tensor(static_cast<float>(step));
    at::_fused_adamw_({p}, {gradient}, {m}, {v}, {}, {s}, 1e-3, 0.9, 0.999, 0.01, 1e-8, false, false, {}, {});
  };
  return {"torch fused AdamW", 28, update, p, {}};
}

Contender torch_plain(const at::Tensor& weights, const at::Tensor& gradient) {
  at::Tensor p = weights.clone().requires_grad_();
  p.mutable_grad() = gradient;
  auto optimizer = std::make_shared<torch::optim::AdamW>(std::vector<at::Tensor>{p},
                                                         torch::optim::AdamWOptions(1e-3).weight_decay(0.01));
  return {"torch::optim::AdamW", 28, [optimizer](int64_t) { optimizer->step(); }, p.detach(), {}};
}

bool verify(std::vector<Contender>& contenders, std::FILE* out) {
  for (Contender& c : contenders) {
    for (int64_t step = 1; step <= 3; ++step) c.update(step);
  }
  bool good = true;
  for (const Contender& c : contenders) {
    const at::Tensor weights = c.joined ? c.joined() : c.weights;
    const double difference = (weights - contenders[0].weights).abs().max().item<double>();
    // Three steps of 1e-3: rounding in fp32 alone, or of bf16 moments by 2^-8 at most.
    // Weights of up to 6 in bf16 are rounded by 2^-6 at first and in each step.
    const double bound = c.name.find("bf16 masters") != std::string::npos   ? 7e-2
                         : c.name.find("bf16 moments") != std::string::npos ? 2e-4
                                                                            : 2e-6;
    std::fprintf(out, "verify %-34s largest difference %.2e (bound %.0e) %s\n", c.name.c_str(), difference,
                 bound, difference <= bound ? "ok" : "WRONG");
    good = good && difference <= bound;
  }
  return good;
}

double timed_update(Contender& c, int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  c.update(step);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void time(std::vector<Contender>& contenders, int repeats) {
  for (int i = 0; i < repeats; ++i) {
    for (Contender& c : contenders) c.seconds.push_back(timed_update(c, 4 + i));
  }
}

// For each line with a contender's number: one step of it, and a line with its seconds.
void serve(std::vector<Contender>& contenders) {
  std::cout << "serving [";
  for (size_t i = 0; i < contenders.size(); ++i) {
    std::cout << (i == 0 ? "" : ", ") << '"' << contenders[i].name << '"';
  }
  std::cout << "]" << std::endl;
  std::vector<int64_t> steps(contenders.size(), 3);
  for (size_t index = 0; std::cin >> index;) {
    std::cout << timed_update(contenders.at(index), ++steps[index]) << std::endl;
  }
}

void report(std::vector<Contender>& contenders, int64_t numel) {
  std::printf("%-34s %10s %10s %10s %12s %8s\n", "", "min ms", "median ms", "p90 ms", "ns/param", "GB/s");
  for (Contender& c : contenders) {
    std::sort(c.seconds.begin(), c.seconds.end());
    const double median = c.seconds[c.seconds.size() / 2];
    const double n = static_cast<double>(numel);
    std::printf("%-34s %10.3f %10.3f %10.3f %12.3f %8.1f\n", c.name.c_str(), c.seconds[0] * 1e3, median * 1e3,
                c.seconds[c.seconds.size() * 9 / 10] * 1e3, median * 1e9 / n,
                n * c.bytes_per_element / median / 1e9);
  }
}

// `plain`: with torch's plain one too, which is ten times slower.
std::vector<Contender> make_contenders(int64_t numel, bool plain) {
  const at::Tensor weights = at::randn({numel});
  const at::Tensor gradient = at::randn({numel});
  const at::Tensor gradient16 = gradient.to(at::kBFloat16);
  std::vector<Contender> contenders;
  contenders.push_back(torch_fused(weights, gradient));
  if (plain) contenders.push_back(torch_plain(weights, gradient));
  contenders.push_back(ours("ours, fp32 moments", weights, gradient, at::kFloat, false));
  contenders.push_back(ours("ours, bf16 moments", weights, gradient, at::kBFloat16, false));
  contenders.push_back(ours("ours, fp32 moments, bf16 copy", weights, gradient, at::kFloat, true));
  contenders.push_back(ours("ours, bf16 moments, copy, gradient", weights, gradient16, at::kBFloat16, true));
  // The step of an engine in bf16: fp32 masters with their copy in the model, and the same masters split.
  contenders.push_back(ours("ours, bf16 gradient, copy", weights, gradient16, at::kFloat, true));
  contenders.push_back(ours_split("ours, bf16 gradient, split masters", weights, gradient16));
  contenders.push_back(ours_narrow("ours, bf16 masters, moments, grad.", weights, gradient16));
  return contenders;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t numel = 26'300'000;
  int threads = 1;
  int repeats = 30;
  bool serves = false;
  CLI::App app{"CPU AdamW against torch's"};
  app.add_option("--numel", numel, "parameters")->check(CLI::PositiveNumber);
  app.add_option("--threads", threads, "threads of each")->check(CLI::PositiveNumber);
  app.add_option("--repeats", repeats, "timed steps")->check(CLI::PositiveNumber);
  app.add_flag("--serve", serves, "step the contenders whose numbers come on the standard input");
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  at::set_num_threads(threads);
  std::vector<Contender> contenders = make_contenders(numel, !serves);
  if (serves) {
    if (!verify(contenders, stderr)) return 1;
    serve(contenders);
    return 0;
  }
  std::printf("%lld parameters, %d threads, %d steps\n", static_cast<long long>(numel), threads, repeats);
  if (!verify(contenders, stdout)) return 1;
  time(contenders, repeats);
  report(contenders, numel);
  return 0;
}
