// Forwards and backwards that the config has captured as CUDA graphs.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/autocast_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>

#include "deepspeed/activation/checkpointing.h"
#include "deepspeed/device/accelerator/host_memory.h"
#include "deepspeed/device/graphs/device_graph.h"
#include "deepspeed/device/streams/side_stream.h"
#include "deepspeed/ops.h"

#include "tests/cuda/require_cuda.h"
#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"

namespace deepspeed::testing {
namespace {

using CudaGraphs = CudaTest;

Json with_graphs(Json patch = Json::object()) {
  Json config = basic({{"cuda_graphs", {{"enabled", true}, {"warmup_steps", 2}}}});
  config.merge_patch(patch);
  return config;
}

template <class Net>
auto engine_of(Json patch = Json::object()) {
  return initialize(std::make_shared<Net>(), {.config = with_graphs(std::move(patch))}).engine;
}

std::pair<at::Tensor, at::Tensor> device_batch(int step) {
  const auto [inputs, targets] = odd_batch(4 * step, 4);
  return {inputs.to(at::kCUDA), targets.to(at::kCUDA)};
}

template <class Engine>
std::vector<double> take_steps(Engine& engine, int steps) {
  std::vector<at::Tensor> losses;
  const auto type = engine->module().parameters().front().scalar_type();
  for (int step = 0; step < steps; ++step) {
    const auto [inputs, targets] = device_batch(step);
    losses.push_back(engine->forward(inputs.to(type), targets));
    engine->backward(losses.back());
    engine->step();
  }
  std::vector<double> values;
  for (const at::Tensor& loss : losses) values.push_back(loss.template item<double>());
  return values;
}

/// A net over odd_batch() whose forward is given as a function.
struct TwoLayers : torch::nn::Module {
  TwoLayers()
      : first(register_module("first", torch::nn::Linear(7, 16))),
        unused(register_module("unused", torch::nn::Linear(3, 3))),
        second(register_module("second", torch::nn::Linear(16, 5))) {}
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& targets) {
    return (second(hidden) - targets).square().mean();
  }
  torch::nn::Linear first, unused, second;
};

struct Dropping : TwoLayers {
  at::Tensor forward(const at::Tensor& x, const at::Tensor& targets) {
    return loss(torch::dropout(first(x).tanh(), 0.3, is_training()), targets);
  }
};

TEST_F(CudaGraphs, DrawNewNumbersForTorchsDropout) {
  const auto engine = engine_of<Dropping>({{"optimizer", {{"params", {{"lr", 0.0}}}}}});
  take_steps(engine, 3);
  const auto [inputs, targets] = device_batch(0);
  const double first = engine->forward(inputs, targets).item<double>();
  EXPECT_NE(engine->forward(inputs, targets).item<double>(), first);
}

/// The fused operators of the library, and its layer.
struct Fused : TwoLayers {
  Fused() : layer(register_module("layer", std::make_shared<ops::DeepSpeedTransformerLayer>(options()))) {}
  static ops::DeepSpeedTransformerConfig options() {
    ops::DeepSpeedTransformerConfig config;
    config.hidden_size = 16;
    config.intermediate_size = 32;
    config.heads = 2;
    config.num_hidden_layers = 1;
    config.attn_dropout_ratio = config.hidden_dropout_ratio = 0;
    config.initializer_range = 0.02;
    config.pre_layer_norm = true;
    return config;
  }
  at::Tensor forward(const at::Tensor& x, const at::Tensor& targets) {
    const at::Tensor ids = targets.argmax(-1), &table = second->weight;
    const at::Tensor hidden = ops::layer_norm(ops::bias_gelu(first(x))) + ops::embedding(table, ids);
    const at::Tensor attended = ops::rms_norm(layer->forward(hidden.unsqueeze(0)).squeeze(0));
    return ops::linear_cross_entropy(attended, table, ids) + loss(attended, targets);
  }
  std::shared_ptr<ops::DeepSpeedTransformerLayer> layer;
};

TEST_F(CudaGraphs, HoldTheLibrarysOperators) {
  for (const Json& patch :
       {Json{{"zero_optimization", {{"stage", 1}}}}, Json{{"bf16", {{"enabled", true}}}}}) {
    manual_seed(5);
    const auto engine = engine_of<Fused>(patch);
    manual_seed(5);
    const auto plain = initialize(std::make_shared<Fused>(), {.config = basic(patch)}).engine;
    const std::vector<double> losses = take_steps(engine, 6), expected = take_steps(plain, 6);
    for (size_t step = 0; step < losses.size(); ++step)
      EXPECT_NEAR(losses[step], expected[step], patch.contains("bf16") ? 2e-2 : 1e-4) << step;
  }
}

/// A pair of outputs, one of which needs no gradient, of arguments that are no tensors as well.
struct LossAndAnswer {
  at::Tensor loss;
  std::optional<at::Tensor> answer;
  int64_t calls = 0;
};
struct OfMany : TwoLayers {
  LossAndAnswer forward(const std::vector<at::Tensor>& tensors, double factor,
                        std::optional<int64_t> power = {}) {
    ++calls;
    const at::Tensor hidden = first(tensors[0]).tanh() * factor;
    return {loss(power ? hidden.pow(*power) : hidden, tensors[1]), hidden.argmax(-1), calls};
  }
  int64_t calls = 0;
};

TEST_F(CudaGraphs, AreOfOneShapeAndOfNumbers) {
  const auto engine =
      initialize(std::make_shared<OfMany>(), {.config = with_graphs({{"cuda_graphs", {{"max_shapes", 3}}}})})
          .engine;
  const auto plain = initialize(std::make_shared<OfMany>(), {.config = basic()}).engine;
  for (size_t i = 0; i < engine->module().parameters().size(); ++i) {
    const at::NoGradGuard no_grad;
    plain->module().parameters()[i].copy_(engine->module().parameters()[i]);
  }
  for (int step = 0; step < 6; ++step) {
    const auto [inputs, targets] = odd_batch(4 * step, 4);
    const std::vector<at::Tensor> all{inputs.to(at::kCUDA), targets.to(at::kCUDA)};
    const std::vector<at::Tensor> part{all[0].slice(0, 0, 3), all[1].slice(0, 0, 3)};
    for (const auto& [tensors, factor] : {std::pair(all, 1.5), std::pair(part, 1.5), std::pair(all, 0.5)}) {
      const LossAndAnswer graphed = engine->forward(tensors, factor),
                          expected = plain->forward(tensors, factor);
      EXPECT_TRUE(at::allclose(graphed.loss, expected.loss, 1e-4)) << step;
      EXPECT_TRUE(graphed.answer->equal(*expected.answer));
      EXPECT_FALSE(graphed.answer->requires_grad());
      engine->backward(graphed.loss);
      plain->backward(expected.loss);
      engine->step();
      plain->step();
    }
    const LossAndAnswer beyond = engine->forward(all, 1.0, std::optional<int64_t>(2));  // a fourth shape
    EXPECT_TRUE(at::allclose(beyond.loss, plain->forward(all, 1.0, std::optional<int64_t>(2)).loss, 1e-4));
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::allclose(engine->forward(all, 1.5).loss, plain->forward(all, 1.5).loss, 1e-4));
  }
  // Two runs and a capture for each of three shapes; those beyond, and without gradients, run each time.
  EXPECT_EQ(engine->module().calls, 3 * 3 + 6 + 6);
}

/// Overloads whose tensors are the same.
struct Overloaded : TwoLayers {
  using Pair = std::pair<at::Tensor, at::Tensor>;
  at::Tensor forward(const at::Tensor& x, const at::Tensor& targets) { return loss(first(x), targets); }
  Pair forward(const Pair& pair) {
    const at::Tensor hidden = first(pair.first).tanh();
    return {loss(hidden, pair.second), hidden};
  }
  at::Tensor forward(const at::Tensor& x, const std::string& one, const std::string& other) {
    return first(x).sum() * (static_cast<double>(one.size()) - static_cast<double>(other.size()));
  }
};

TEST_F(CudaGraphs, AreOfOneOverloadAndOfTexts) {
  const auto engine = engine_of<Overloaded>({{"optimizer", {{"params", {{"lr", 0.0}}}}}});
  const auto [x, targets] = device_batch(0);
  for (int step = 0; step < 4; ++step) {
    const at::Tensor plain = engine->forward(x, targets);
    const auto [loss, hidden] = engine->forward(std::make_pair(x, targets));
    EXPECT_TRUE(at::allclose(plain, engine->module().forward(x, targets), 1e-4)) << step;
    EXPECT_TRUE(at::allclose(loss, engine->module().forward(std::make_pair(x, targets)).first, 1e-4)) << step;
    EXPECT_EQ(hidden.sizes(), at::IntArrayRef({4, 16}));
    const at::Tensor two = engine->forward(x, std::string("a, "), std::string("b"));
    const at::Tensor zero = engine->forward(x, std::string("a"), std::string("b"));
    EXPECT_TRUE(at::allclose(two, engine->module().forward(x, "a, ", "b"), 1e-4)) << step;
    EXPECT_EQ(zero.item<double>(), 0);
  }
}

TEST_F(CudaGraphs, GiveGradientsOfInputs) {
  const auto engine = engine_of<OddNet>({{"optimizer", {{"params", {{"lr", 0.0}}}}}});
  at::Tensor expected;
  for (int step = 0; step < 5; ++step) {
    const auto [inputs, targets] = device_batch(0);
    const at::Tensor doubled = inputs.requires_grad_(true) * 2;
    engine->backward(engine->forward(doubled, targets));
    engine->step();
    if (step == 0) expected = inputs.grad();
    EXPECT_TRUE(at::allclose(inputs.grad(), expected, 1e-4)) << step;
  }
}

TEST_F(CudaGraphs, FollowBuffersThatMove) {
  struct Scaled : TwoLayers {
    Scaled() { factor = register_buffer("factor", torch::ones({1})); }
    at::Tensor forward(const at::Tensor& x, const at::Tensor& targets) {
      return loss(first(x).tanh() * factor, targets);
    }
    at::Tensor factor;
  };
  const auto engine = engine_of<Scaled>({{"optimizer", {{"params", {{"lr", 0.0}}}}}});
  take_steps(engine, 4);
  const auto [inputs, targets] = device_batch(0);
  const at::Tensor before = engine->forward(inputs, targets);
  engine->module().factor.fill_(3);
  const at::Tensor written = engine->forward(inputs, targets);
  EXPECT_FALSE(before.equal(written));
  engine->module().factor.set_data(engine->module().factor.detach().clone().fill_(1));
  const at::Tensor moved = engine->forward(inputs, targets);
  EXPECT_TRUE(at::allclose(moved, before, 1e-4));
  engine->module().factor.set_data(torch::ones({1}, at::kCUDA));
  engine->backward(moved);  // by the memory of its forward
}

TEST_F(CudaGraphs, LeaveNoCastsToAutocastAround) {
  const auto engine = engine_of<OddNet>({{"optimizer", {{"params", {{"lr", 0.0}}}}}});
  const auto [inputs, targets] = device_batch(0);
  at::Tensor expected;
  for (int step = 0; step < 4; ++step) {
    at::autocast::set_autocast_enabled(at::kCUDA, true);  // of the program: its cache outlives the forward
    const at::Tensor loss = engine->forward(inputs, targets);
    const at::Tensor plain = engine->module().forward(inputs, targets);
    at::autocast::set_autocast_enabled(at::kCUDA, false);
    at::autocast::clear_cache();
    if (step == 0) expected = plain.detach();
    EXPECT_TRUE(at::allclose(plain, expected, 1e-4)) << step;
    EXPECT_TRUE(at::allclose(loss, expected, 1e-4)) << step;
    engine->backward(loss);
    engine->step();
  }
}

TEST_F(CudaGraphs, RefuseABackwardWhoseActivationsAreGone) {
  const auto engine = engine_of<OddNet>();
  take_steps(engine, 3);
  const auto [inputs, targets] = device_batch(0);
  const at::Tensor first = engine->forward(inputs, targets), second = engine->forward(inputs, targets);
  EXPECT_ERROR(UsageError, engine->backward(first), "cuda_graphs", "a later forward", "enabled to false");
  engine->zero_grad();
  engine->backward(second, {.retain_graph = true});
  EXPECT_ERROR(UsageError, engine->backward(second), "cuda_graphs", "a second backward()");
  engine->zero_grad();
  take_steps(engine, 2);
}

TEST_F(CudaGraphs, RefuseWhatCannotBeCaptured) {
  struct Reading : TwoLayers {
    at::Tensor forward(const at::Tensor& x, const at::Tensor& targets) {
      const at::Tensor hidden = first(x);
      return loss(hidden / hidden.abs().max().item<double>(), targets);
    }
  };
  struct Recomputing : TwoLayers {
    at::Tensor forward(const at::Tensor& x, const at::Tensor& targets) {
      return loss(checkpointing::checkpoint([&](at::Tensor given) { return first(given); }, x), targets);
    }
  };
  struct OwnDropout : TwoLayers {
    at::Tensor forward(const at::Tensor& x, const at::Tensor& targets) {
      return loss(ops::dropout(first(x), 0.1), targets);
    }
  };
  struct Writing : TwoLayers {
    at::Tensor forward(at::Tensor x, const at::Tensor& targets) { return loss(first(x.mul_(2)), targets); }
  };
  struct Opaque : TwoLayers {
    at::Tensor forward(const at::Tensor& x, std::shared_ptr<int>) { return first(x).sum(); }
  };
  const auto refuses = [](const auto& engine, const char* why) {
    const auto [inputs, targets] = device_batch(0);
    for (int step = 0; step < 2; ++step) engine->backward(engine->forward(inputs, targets));
    for (int again = 0; again < 2; ++again)
      EXPECT_ERROR(UsageError, engine->forward(inputs, targets), "cuda_graphs", why, "enabled to false");
    engine->step();  // the window is whole
  };
  refuses(engine_of<Reading>(), "captur");
  refuses(engine_of<Writing>(), "writes a tensor");
  const auto hooked = engine_of<OddNet>();
  hooked->module().parameters().front().register_hook([](at::Tensor gradient) { return gradient; });
  refuses(hooked, "has a hook");

  const auto [inputs, targets] = device_batch(0);
  for (int step = 0; step < 2; ++step) EXPECT_NO_THROW(engine_of<Recomputing>()->forward(inputs, targets));
  const auto recomputing = engine_of<Recomputing>();
  const auto dropping = engine_of<OwnDropout>();
  for (int step = 0; step < 2; ++step) {
    recomputing->forward(inputs, targets);
    dropping->forward(inputs, targets);
  }
  EXPECT_ERROR(NotSupportedError, recomputing->forward(inputs, targets), "checkpoint()", "cuda_graphs");
  EXPECT_ERROR(NotSupportedError, dropping->forward(inputs, targets), "dropout", "cuda_graphs");
  EXPECT_ERROR(UsageError, engine_of<Opaque>()->forward(inputs, std::make_shared<int>()), "cuda_graphs",
               "type");
  EXPECT_ERROR(UsageError, engine_of<OddNet>()->forward(inputs.cpu(), targets), "tensor 0", "cpu", "cuda");
}

/// Reads a number in a capture, which fails by it.
void fail_to_capture(c10::Device device, const device::SideStream& stream) {
  const at::Tensor numbers = at::ones({8}, device);
  const auto read = [&] {
    const at::Tensor more = at::dropout(numbers, 0.5, true) + at::ones({1 << 20}, device).sum();
    more.sum().item<float>();
  };
  EXPECT_THROW(device::DeviceGraph::capture(device, stream, read), c10::Error);
}

TEST_F(CudaGraphs, LeaveTorchIntactIfACaptureFails) {
  const c10::Device device(at::kCUDA, 0);
  const device::SideStream stream(device, device::SideStream::Use::kCapture), other(device);
  const at::Tensor before = at::rand({8}, device);
  for (int time = 0; time < 3; ++time) {
    fail_to_capture(device, stream);
    EXPECT_NO_THROW(at::rand({8}, device));
    EXPECT_NO_THROW(at::dropout(before, 0.5, true));
  }
  // Memory that another stream has used comes back, too.
  for (int time = 0; time < 20; ++time) {
    const at::Tensor host = at::ones({1 << 22}), there = at::empty({1 << 22}, device);
    other.copy(there, host).wait();
  }
  const at::Tensor sum = at::zeros({8}, device);
  const auto graph = device::DeviceGraph::capture(device, stream, [&] { sum.add_(1); });
  graph.replay();
  EXPECT_NO_THROW(sum.cpu());
}

TEST_F(CudaGraphs, TakeNothingOfOtherSideStreams) {
  const c10::Device device(at::kCUDA, 0);
  const device::SideStream captured(device, device::SideStream::Use::kCapture);
  std::vector<device::SideStream> others;
  for (int i = 0; i < 70; ++i) others.emplace_back(device);  // more than torch has
  const at::Tensor host = device::empty_host(16, at::kFloat, true).fill_(3), there = at::empty({16}, device);
  const at::Tensor sum = at::zeros({16}, device), back = device::empty_host(16, at::kFloat, true);
  const auto work = [&] {
    sum.add_(1);
    std::thread([&] {
      for (const device::SideStream& stream : others) {
        stream.copy_at_once(there, host).wait();
        stream.copy_at_once(back.zero_(), there).wait();
        EXPECT_EQ(back[7].item<float>(), 3.0F);
      }
    }).join();
  };
  EXPECT_NO_THROW(device::DeviceGraph::capture(device, captured, work).replay());
}

}  // namespace
}  // namespace deepspeed::testing
