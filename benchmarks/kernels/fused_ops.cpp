// The fused operators, forward and backward, against torch's own operators that give the same. Verifies
// outputs and gradients first, then times both in turns: a ratio is the median over the rounds of (time of
// torch / own time). The least times are printed beside it, since a busy machine adds to both, and the most
// memory of either: own / torch. "of a copy" is the rate of the bytes that an operator has to move, against
// that of a copy of the device.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <CLI/CLI.hpp>

#include "deepspeed/launcher/program_main.h"
#include "deepspeed/ops/functional.h"

namespace {

namespace ops = deepspeed::ops;
using Tensors = std::vector<at::Tensor>;

/// One operator and what torch has in its place, over the same inputs, of which the first `learned` have
/// gradients.
struct Case {
  std::string name;
  Tensors inputs;
  size_t learned = 0;
  double bytes = 0;  // that forward and backward move at least; 0: products of matrices take the time
  std::function<at::Tensor(const Tensors&)> own, torchs;
  bool is_random = false;  // dropout: the two draw other masks, so shares are compared
};

struct Options {
  int64_t rows = 4096, columns = 1024, vocabulary = 50'000;
  int rounds = 15, threads = 0;
  std::string dtype = "float", device = "cpu";
  std::string only;
  at::ScalarType type() const { return dtype == "bfloat16" ? at::kBFloat16 : at::kFloat; }
  at::Device place() const { return at::Device(device); }
  double bytes_of(double numel) const { return numel * static_cast<double>(at::elementSize(type())); }
  /// Bytes of an input [rows, columns].
  double tensor() const { return bytes_of(static_cast<double>(rows * columns)); }
};

/// Makes the inputs of cases.
struct Inputs {
  explicit Inputs(const Options& given) : options(given) {}
  at::Tensor learned(at::IntArrayRef sizes, double scale = 1) const {
    return at::randn(sizes, options.place()).mul_(scale).to(options.type()).set_requires_grad(true);
  }
  const Options& options;
};

std::vector<Case> norm_cases(const Inputs& make) {
  const int64_t n = make.options.columns, rows = make.options.rows;
  return {{"layer_norm of a sum",
           {make.learned({rows, n}), make.learned({rows, n}), make.learned({n}), make.learned({n})},
           4,
           11 * make.options.tensor(),
           [](const Tensors& t) {
             const auto [norm, sum] = ops::add_layer_norm(t[0], t[1], t[2], t[3]);
             return norm + sum;
           },
           [](const Tensors& t) {
             const at::Tensor sum = t[0] + t[1];
             return at::layer_norm(sum, {sum.size(-1)}, t[2], t[3]) + sum;
           }},
          {"layer_norm",
           {make.learned({rows, n}), make.learned({n}), make.learned({n})},
           3,
           5 * make.options.tensor(),
           [](const Tensors& t) { return ops::layer_norm(t[0], t[1], t[2]); },
           [](const Tensors& t) { return at::layer_norm(t[0], {t[0].size(-1)}, t[1], t[2]); }},
          {"rms_norm of a sum",
           {make.learned({rows, n}), make.learned({rows, n}), make.learned({n})},
           3,
           11 * make.options.tensor(),
           [](const Tensors& t) {
             const auto [norm, sum] = ops::add_rms_norm(t[0], t[1], t[2]);
             return norm + sum;
           },
           [](const Tensors& t) {
             const at::Tensor sum = t[0] + t[1];
             return at::rms_norm(sum, {sum.size(-1)}, t[2], 1e-6) + sum;
           }}};
}

std::vector<Case> feed_forward_cases(const Inputs& make) {
  const int64_t n = make.options.columns, rows = make.options.rows;
  return {{"bias_gelu",
           {make.learned({rows, n}), make.learned({n})},
           2,
           5 * make.options.tensor(),
           [](const Tensors& t) { return ops::bias_gelu(t[0], t[1]); },
           [](const Tensors& t) { return at::gelu(t[0] + t[1], "tanh"); }},
          {"swiglu",
           {make.learned({rows, 2 * n})},
           1,
           8 * make.options.tensor(),
           [](const Tensors& t) { return ops::swiglu(t[0]); },
           [](const Tensors& t) {
             const Tensors halves = t[0].chunk(2, -1);
             return at::silu(halves[0]) * halves[1];
           }},
          {"bias_dropout_residual",
           {make.learned({rows, n}), make.learned({n}), make.learned({rows, n})},
           3,
           5 * make.options.tensor(),
           [](const Tensors& t) { return ops::bias_dropout_residual(t[0], t[1], t[2], 0.1); },
           [](const Tensors& t) { return at::dropout(t[0] + t[1], 0.1, true) + t[2]; },
           true},
          {"dropout",
           {make.learned({rows, n})},
           1,
           4 * make.options.tensor(),
           [](const Tensors& t) { return ops::dropout(t[0], 0.1); },
           [](const Tensors& t) { return at::dropout(t[0], 0.1, true); },
           true}};
}

std::vector<Case> attention_cases(const Inputs& make) {
  const int64_t keys = 512, heads = 8,
                batch =
                    std::max<int64_t>(1, make.options.rows * make.options.columns / (keys * keys * heads));
  const at::Tensor mask =
      at::full({keys, keys}, -INFINITY, make.options.place()).triu_(1).to(make.options.type());
  const int64_t dim = 64;
  const auto tables = ops::rotary_tables(keys, dim, 10000, make.options.place());
  const at::Tensor cos = at::cat({tables.cos, tables.cos}, -1).to(make.options.type());
  const at::Tensor sin = at::cat({tables.sin, tables.sin}, -1).to(make.options.type());
  return {{"masked_softmax",
           {make.learned({batch, heads, keys, keys}), mask},
           1,
           5 * make.options.bytes_of(static_cast<double>(batch * heads * keys * keys)),
           [](const Tensors& t) { return ops::masked_softmax(t[0], t[1], 0.125); },
           [](const Tensors& t) { return at::softmax(t[0] * 0.125 + t[1], -1); }},
          {"rotary_embedding",
           {make.learned({batch * 4, heads, keys, dim}), cos, sin},
           1,
           4 * make.options.bytes_of(static_cast<double>(batch * 4 * heads * keys * dim)),
           [tables](const Tensors& t) { return ops::rotary_embedding(t[0], tables.cos, tables.sin); },
           [](const Tensors& t) {
             const Tensors halves = t[0].chunk(2, -1);
             return t[0] * t[1] + at::cat({-halves[1], halves[0]}, -1) * t[2];
           }}};
}

std::vector<Case> vocabulary_cases(const Inputs& make) {
  const int64_t rows = make.options.rows / 4, features = make.options.columns / 2,
                words = make.options.vocabulary;
  const at::Tensor targets = at::randint(words, {rows}, at::kLong).to(make.options.place());
  // Frequent words come more often, as in a text.
  const at::Tensor indices =
      at::rand({make.options.rows}).pow_(3).mul_(words).to(at::kLong).to(make.options.place());
  const auto with = [targets](bool in_forward) {
    return [targets, in_forward](const Tensors& t) {
      return ops::linear_cross_entropy(t[0], t[1], targets, {}, {.gradients_in_forward = in_forward});
    };
  };
  const auto torchs = [targets](const Tensors& t) {
    return at::cross_entropy_loss(at::linear(t[0], t[1]).to(at::kFloat), targets);
  };
  const Tensors linear{make.learned({rows, features}), make.learned({words, features}, 0.02)};
  const double table = make.options.bytes_of(static_cast<double>(words * make.options.columns));
  return {{"linear_cross_entropy", linear, 2, 0, with(true), torchs},
          {"linear_cross_entropy, again in backward", linear, 2, 0, with(false), torchs},
          {"embedding",
           {make.learned({words, make.options.columns})},
           1,
           3 * make.options.tensor() + table,
           [indices](const Tensors& t) { return ops::embedding(t[0], indices); },
           [indices](const Tensors& t) { return at::embedding(t[0], indices); }}};
}

/// The output and the gradients.
Tensors run(const std::function<at::Tensor(const Tensors&)>& function, const Case& c,
            const at::Tensor& grad) {
  const at::Tensor output = function(c.inputs);
  const Tensors learned(c.inputs.begin(), c.inputs.begin() + static_cast<int64_t>(c.learned));
  Tensors result = torch::autograd::grad({output}, learned, {grad.defined() ? grad : at::ones_like(output)});
  result.insert(result.begin(), output.detach());
  return result;
}

/// Throws where the two do not agree.
void verify(const Case& c, const Options& options) {
  at::manual_seed(1);
  const at::Tensor grad = at::randn_like(c.torchs(c.inputs));
  const Tensors own = run(c.own, c, grad), torchs = run(c.torchs, c, grad);
  const double tolerance = options.type() == at::kFloat ? 1e-4 : 0.03;
  for (size_t i = 0; i < own.size(); ++i) {
    const at::Tensor a = own[i].to(at::kDouble), b = torchs[i].to(at::kDouble);
    const double size = b.abs().mean().item<double>();
    const double off = c.is_random ? std::abs((a.mean() - b.mean()).item<double>()) / (0.05 + size)
                                   : (a - b).abs().mean().item<double>() / (1e-8 + size);
    if (!(off <= (c.is_random ? 0.05 : tolerance))) {
      throw std::runtime_error("result " + std::to_string(i) + " is off torch's by " + std::to_string(off));
    }
  }
}

/// Waits until the device has done its work.
void wait_for(const at::Device& device) {
  if (!device.is_cpu()) at::accelerator::synchronizeDevice(0);
}

/// Returns the seconds of a call: of ten in a row on a device, whose clock is read from afar.
double seconds_of(const Options& options, const std::function<void()>& work) {
  const int calls = options.place().is_cpu() ? 1 : 10;
  wait_for(options.place());
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) work();
  wait_for(options.place());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / calls;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double least(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

double status_mib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::stod(line.substr(key.size() + 1)) / 1024;
  }
  throw std::runtime_error("/proc/self/status has no " + key);
}

/// Returns the most memory in MiB of the device, or resident, at a time beyond what was so before.
double peak_mib_of(const Options& options, const std::function<void()>& work) {
  if (!options.place().is_cpu()) {
    at::accelerator::resetPeakStats(0);
    const auto stats = [] { return at::accelerator::getDeviceStats(0).allocated_bytes[0]; };
    const auto before = static_cast<double>(stats().current);
    work();
    return (static_cast<double>(stats().peak) - before) / 1048576;
  }
  std::ofstream("/proc/self/clear_refs") << 5;  // VmHWM begins at VmRSS again
  const double before = status_mib("VmRSS");
  work();
  return status_mib("VmHWM") - before;
}

/// Returns how many bytes a second a copy moves, which it reads and writes.
double copy_rate(const Options& options) {
  const at::Tensor from = at::ones({options.rows, options.columns}, options.place()).to(options.type());
  const at::Tensor to = at::empty_like(from);
  std::vector<double> times;
  for (int round = 0; round < options.rounds + 2; ++round)
    times.push_back(seconds_of(options, [&] { to.copy_(from); }));
  return 2 * options.tensor() / least(times);
}

void measure(const Case& c, const Options& options, double rate) {
  verify(c, options);
  const at::Tensor output = c.torchs(c.inputs);
  const at::Tensor grad = output.dim() == 0 ? at::ones_like(output) : at::randn_like(output);
  std::vector<double> own, torchs, ratios;
  for (int round = 0; round < options.rounds + 2; ++round) {
    const double a = seconds_of(options, [&] { run(c.own, c, grad); }),
                 b = seconds_of(options, [&] { run(c.torchs, c, grad); });
    if (round < 2) continue;
    own.push_back(a);
    torchs.push_back(b);
    ratios.push_back(b / a);
  }
  const double own_mib = peak_mib_of(options, [&] { run(c.own, c, grad); }),
               torch_mib = peak_mib_of(options, [&] { run(c.torchs, c, grad); });
  std::printf("%-42s | %9.2f | %9.2f | %7.2f | %7.2f | %8.0f | %8.0f | %6.2f | ", c.name.c_str(),
              least(own) * 1e3, least(torchs) * 1e3, least(torchs) / least(own), median(ratios), own_mib,
              torch_mib, own_mib / torch_mib);
  if (c.bytes > 0) {
    std::printf("%9.2f\n", c.bytes / least(own) / rate);
  } else {
    std::printf("%9s\n", "-");
  }
  std::fflush(stdout);
}

void measure_all(const Options& options) {
  if (options.threads > 0) at::set_num_threads(options.threads);
  const double rate = copy_rate(options);
  std::printf("%s, %d threads, %s, %lld rows of %lld; a copy moves %.1f GB/s\n", options.device.c_str(),
              at::get_num_threads(), options.dtype.c_str(), static_cast<long long>(options.rows),
              static_cast<long long>(options.columns), rate / 1e9);
  std::printf("%-42s | %9s | %9s | %7s | %7s | %8s | %8s | %6s | %9s\n", "forward and backward", "own (ms)",
              "torch", "ratio", "median", "own MiB", "torch", "ratio", "of a copy");
  const Inputs make(options);
  int failed = 0;
  for (const auto& cases : {&norm_cases, &feed_forward_cases, &attention_cases, &vocabulary_cases}) {
    for (const Case& c : cases(make)) {
      if (c.name.find(options.only) == std::string::npos) continue;
      try {
        measure(c, options, rate);
      } catch (const std::exception& error) {  // the others' rows are worth their time
        std::printf("%-42s | UNVERIFIED: %s\n", c.name.c_str(), error.what());
        ++failed;
      }
    }
  }
  if (failed > 0)
    throw std::runtime_error(std::to_string(failed) + " operators are unverified, and not timed");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app{
      "Times the fused operators, forward and backward, against torch's operators. Each is verified first."};
  app.add_option("--rows", options.rows, "rows of an input");
  app.add_option("--columns", options.columns, "elements of a row");
  app.add_option("--vocabulary", options.vocabulary,
                 "classes of linear_cross_entropy, rows of the embedding");
  app.add_option("--rounds", options.rounds, "rounds that count");
  app.add_option("--threads", options.threads, "threads; 0 for torch's default");
  app.add_option("--dtype", options.dtype, "float or bfloat16")->check(CLI::IsMember({"float", "bfloat16"}));
  app.add_option("--device", options.device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--only", options.only, "run the operators whose name has this part");
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) return *status;
  return deepspeed::launcher::exit_of_work("fused_ops", [&] { measure_all(options); });
}
