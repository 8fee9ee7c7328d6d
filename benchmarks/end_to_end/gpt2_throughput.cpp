// Tokens a second of the engine on GPT-2 (bf16 with fp32 masters, AdamW, one rank) on the GPU, or on the CPU
// where there is none. Prints one line of JSON; benchmarks/gpu/ runs it beside PyTorch on the same weights
// and tokens.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/library.h>

#include <CLI/CLI.hpp>

#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/deepspeed.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/accelerator/memory.h"
#include "deepspeed/launcher/program_main.h"

#include "examples/gpt2/gpt.h"

namespace {

using Clock = std::chrono::steady_clock;
using deepspeed::Json;

struct Options {
  gpt2::GptConfig model{.vocabulary = 50304, .context = 1024, .layers = 12, .heads = 12, .width = 768};
  int64_t micro_batch = 8;
  int64_t steps = 20;
  int64_t warmup = 5;
  std::string zero = R"({"stage": 0})";  // the config's section zero_optimization
  double clipping = 1.0;
  std::string bf16 = R"({"enabled": true})";  // the section bf16
  bool cuda_graphs = false;
  bool partitioned = false;  // built under zero::Init, so that it never stands whole
  bool profile = false;      // one step more, by kernel
  std::string weights;       // where the first weights are written, for the peer
};

Options read_options(int argc, char** argv) {
  Options options;
  CLI::App app{"GPT-2's tokens a second"};
  app.add_option("--layers", options.model.layers, "blocks");
  app.add_option("--heads", options.model.heads, "attention heads");
  app.add_option("--width", options.model.width, "width of the residual stream");
  app.add_option("--context", options.model.context, "tokens of a sequence");
  app.add_option("--vocabulary", options.model.vocabulary, "different tokens");
  app.add_option("--micro_batch", options.micro_batch, "sequences a step");
  app.add_option("--steps", options.steps, "timed steps");
  app.add_option("--warmup", options.warmup, "steps before them");
  app.add_option("--zero", options.zero, "the config's section zero_optimization, JSON");
  app.add_option("--clipping", options.clipping, "gradient clipping, 0: none");
  app.add_option("--bf16", options.bf16, "the config's section bf16, JSON");
  app.add_flag("--cuda_graphs", options.cuda_graphs, "capture forward and backward as CUDA graphs");
  app.add_flag("--partitioned", options.partitioned, "build the model under zero::Init");
  app.add_flag("--profile", options.profile,
               "list what one more step runs: kernels on a GPU, operators with all that they call on a CPU");
  app.add_option("--weights", options.weights, "file for the first weights, readable by torch.load");
  if (const auto status = deepspeed::launcher::exit_of_command_line(app, argc, argv)) std::exit(*status);
  return options;
}

/// Tokens by formula, the same in torch_peer.py: (B, T + 1).
at::Tensor make_text(int64_t step, const Options& options) {
  const int64_t length = options.model.context + 1;
  const auto index = at::arange(options.micro_batch * length, at::kLong);
  return ((index * 7919 + index.div(5, "floor") + step * 104729) % options.model.vocabulary)
      .reshape({options.micro_batch, length});
}

void write_weights(const gpt2::GPT& model, const std::string& file) {
  deepspeed::checkpoint::Dict dict;
  for (const auto& entry : model.named_parameters()) dict.set(entry.key(), entry.value().detach());
  deepspeed::checkpoint::write_torch_archive(file, dict);
}

/// While it lives, initialisers on the CPU draw from uniform distributions of the wanted mean and variance,
/// on all cores: torch's own take a minute for some billions of weights.
class QuickDraws {
 public:
  QuickDraws() : library_(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__) {
    library_.impl("normal_",
                  [](at::Tensor& self, double mean, double std, std::optional<at::Generator>) -> at::Tensor& {
                    const double half = std * std::sqrt(3.0);
                    return fill(self, mean - half, mean + half);
                  });
    library_.impl("uniform_",
                  [](at::Tensor& self, double from, double to, std::optional<at::Generator>) -> at::Tensor& {
                    return fill(self, from, to);
                  });
  }

 private:
  static at::Tensor& fill(at::Tensor& self, double from, double to) {
    TORCH_CHECK(self.is_contiguous() && self.scalar_type() == at::kFloat,
                "a contiguous float32 tensor is expected");
    static uint64_t num_drawn = 0;
    auto* const values = self.mutable_data_ptr<float>();
    const uint64_t first = num_drawn;
    at::parallel_for(0, self.numel(), 1 << 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        uint64_t bits =
            (first + uint64_t(i)) * 0x9e3779b97f4a7c15;  // splitmix64's increment and finaliser, shortened
        bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
        values[i] = float(from + (to - from) * double(bits >> 11) * 0x1p-53);
      }
    });
    num_drawn += uint64_t(self.numel());
    return self;
  }

  torch::Library library_;
};

std::shared_ptr<gpt2::GPT> build(const Options& options, const Json& config) {
  deepspeed::manual_seed(1);
  if (!options.weights.empty()) {
    auto model = std::make_shared<gpt2::GPT>(options.model);
    write_weights(*model, options.weights);
    return model;
  }
  const QuickDraws quickly;
  if (!options.partitioned) return std::make_shared<gpt2::GPT>(options.model);
  deepspeed::zero::Init init({.config_dict_or_path = config});
  auto model = std::make_shared<gpt2::GPT>(options.model);
  init.close(*model);
  return model;
}

/// Returns what runs on the device during the call, as [{name, calls, ms}], the longest first.
Json profile(const c10::Device& device, const std::function<void()>& call) {
  namespace profiler = torch::autograd::profiler;
  using torch::profiler::impl::ActivityType;
  const std::set<ActivityType> activities{device.is_cuda() ? ActivityType::CUDA : ActivityType::CPU};
  const profiler::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities);
  call();
  deepspeed::device::synchronize();
  std::map<std::string, std::pair<int64_t, double>> found;
  const auto result = profiler::disableProfiler();
  for (const auto& event : result->events()) {
    if (event.deviceType() != device.type()) continue;  // of a call by the host
    auto& [calls, ms] = found[event.name()];
    ++calls;
    ms += 1e-6 * double(event.durationNs());
  }
  Json list = Json::array();
  for (const auto& [name, entry] : found) {
    list.push_back({{"name", name}, {"calls", entry.first}, {"ms", entry.second}});
  }
  std::sort(list.begin(), list.end(), [](const Json& a, const Json& b) { return a.at("ms") > b.at("ms"); });
  return list;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = read_options(argc, argv);
  const Json config = {{"train_micro_batch_size_per_gpu", options.micro_batch},
                       {"bf16", Json::parse(options.bf16)},
                       {"gradient_clipping", options.clipping},
                       {"zero_optimization", Json::parse(options.zero)},
                       {"cuda_graphs", {{"enabled", options.cuda_graphs}, {"warmup_steps", 1}}},
                       {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-4}, {"weight_decay", 0.1}}}}}};
  auto model = build(options, config);
  int64_t parameters = 0;
  for (const auto& parameter : model->parameters()) parameters += parameter.numel();
  const auto estimate = deepspeed::zero::estimate_model_states(deepspeed::describe_module(model), config, 1);
  const auto engine = deepspeed::initialize(model, {.config = config}).engine;

  const auto device = engine->device();
  std::vector<at::Tensor> losses;
  std::vector<double> step_ms, optimizer_ms;
  const auto milliseconds_since = [](Clock::time_point start) {
    deepspeed::device::synchronize();
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  const auto median_of = [&](std::vector<double> values) {
    values.erase(values.begin(), values.begin() + options.warmup);
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  const auto batch_of = [&](int64_t step) {
    const auto text = make_text(step, options).to(device);
    return std::pair(text.narrow(1, 0, options.model.context).contiguous(),
                     text.narrow(1, 1, options.model.context).contiguous());
  };
  const int64_t num_steps = options.warmup + options.steps;
  for (int64_t step = 0; step < num_steps; ++step) {
    const auto [tokens, targets] = batch_of(step);
    const auto start = Clock::now();
    const auto loss = engine->forward(tokens, targets);
    engine->backward(loss);
    const double before = milliseconds_since(start);
    engine->step();
    losses.push_back(loss.detach());
    step_ms.push_back(milliseconds_since(start));
    optimizer_ms.push_back(step_ms.back() - before);
  }

  const double median = median_of(step_ms);
  Json result = {
      {"parameters", parameters},
      {"device", device.is_cuda() ? "cuda" : "cpu"},
      {"step_ms", median},
      {"optimizer_ms", median_of(optimizer_ms)},
      {"estimated_bytes", estimate.total()},
      {"host_peak_bytes", deepspeed::device::peak_resident_bytes()},
      {"tokens_per_s", 1e3 * static_cast<double>(options.micro_batch * options.model.context) / median},
      {"peak_bytes", device.is_cuda() ? deepspeed::device::cuda_peak_allocated_bytes()
                                      : deepspeed::device::peak_resident_bytes()}};
  for (const auto& loss : losses) result["losses"].push_back(loss.item<double>());
  if (options.profile) {
    const auto [tokens, targets] = batch_of(num_steps);
    result["profile"] = profile(device, [&, &tokens = tokens, &targets = targets] {
      engine->backward(engine->forward(tokens, targets));
      engine->step();
    });
  }
  std::printf("%s\n", result.dump().c_str());
  return 0;
}
