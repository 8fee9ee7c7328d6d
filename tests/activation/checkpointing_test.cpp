#include "deepspeed/activation/checkpointing.h"

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/relu.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>

#include "deepspeed/autograd/saved_tensors.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/precision/autocast.h"
#include "deepspeed/random/cuda_rng_tracker.h"

#include "tests/activation/plain_and_checkpointed.h"
#include "tests/autograd/gpt_block.h"
#include "tests/support/error_of.h"

namespace deepspeed::testing {
namespace {

using checkpointing::checkpoint;
using checkpointing::RegionOptions;
using checkpointing::SelectivePolicy;

at::Tensor drop(const at::Tensor& x) {
  return torch::nn::functional::dropout(x, torch::nn::functional::DropoutFuncOptions().p(0.3));
}

Tensors drop_all(Tensors tensors) {
  for (auto& tensor : tensors) tensor = drop(tensor);
  return tensors;
}

std::shared_ptr<const SelectivePolicy> products() {
  return std::make_shared<SelectivePolicy>(SelectivePolicy::matmuls_and_attention());
}

struct Way {
  const char* name;
  RegionOptions options;
};
std::vector<Way> ways() {
  return {
      {"NotReentrant", {}}, {"Reentrant", {.use_reentrant = true}}, {"ProductsKept", {.keep = products()}}};
}

class Checkpoint : public ::testing::TestWithParam<Way> {
 protected:
  Checkpoint() { device::seed_generators(1); }
  ~Checkpoint() override { checkpointing::configure(); }

  /// Holds the checkpointed function to the plain one.
  static void expect_same(const TensorFunction& function, const Tensors& inputs, const Tensors& params,
                          const RegionOptions& options = GetParam().options) {
    const auto plain = see(function, inputs, params);
    int count = 0;
    expect_equal_bits(see(checkpointed(counted(function, count), options), inputs, params), plain);
    EXPECT_EQ(count, 2);
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, Checkpoint, ::testing::ValuesIn(ways()),
                         [](const auto& way) { return way.param.name; });

TEST_P(Checkpoint, GivesTheBitsOfAPlainCall) {
  Block block;
  expect_same([&](Tensors x) -> Tensors { return {block(x[0])}; }, {at::randn({2, 6, kWidth})},
              block.parameters());
}

TEST_P(Checkpoint, RepeatsDropout) {
  Block block;
  expect_same([&](Tensors x) -> Tensors { return {drop(block(drop(x[0])))}; }, {at::randn({2, 6, kWidth})},
              block.parameters());
}

TEST_P(Checkpoint, RepeatsStreamsOfTheTracker) {
  Block block;
  const auto seeded = [](const TensorFunction& function) -> TensorFunction {
    return [=](Tensors x) {
      model_parallel_cuda_manual_seed(3, 1);
      return function(std::move(x));
    };
  };
  const TensorFunction function = [&](Tensors x) -> Tensors {
    const auto h = drop(x[0]);
    const auto fork = get_cuda_rng_tracker().fork();
    return {drop(block(h))};
  };
  const Tensors inputs{at::randn({2, 6, kWidth})};
  const auto plain = see(seeded(function), inputs, block.parameters());
  const auto state_after = get_cuda_rng_tracker().get_states();
  expect_equal_bits(see(seeded(checkpointed(function, GetParam().options)), inputs, block.parameters()),
                    plain);
  EXPECT_TRUE(
      get_cuda_rng_tracker().get_states().at(kModelParallelRng).equal(state_after.at(kModelParallelRng)));
  get_cuda_rng_tracker().reset();
}

TEST_P(Checkpoint, RepeatsAutocastThatBackwardIsOutside) {
  Block block;
  const TensorFunction inner = [&](Tensors x) -> Tensors { return {drop(block(x[0]))}; };
  const auto under_autocast = [](const TensorFunction& function) -> TensorFunction {
    return [=](Tensors x) {
      const precision::AutocastScope autocast(at::kCPU, at::kBFloat16);
      return function(std::move(x));
    };
  };
  const Tensors inputs{at::randn({2, 6, kWidth})};
  const auto plain = see(under_autocast(inner), inputs, block.parameters());
  expect_equal_bits(see(under_autocast(checkpointed(inner, GetParam().options)), inputs, block.parameters()),
                    plain);
}

TEST_P(Checkpoint, SharesAutocastWithCodeAroundIt) {
  // The weight is used in the region and after it: a cast that the region left without gradients would show.
  torch::nn::Linear linear(kWidth, kWidth);
  const TensorFunction inner = [&](Tensors x) -> Tensors { return {at::relu(linear(x[0]))}; };
  const auto around = [&](const TensorFunction& function) -> TensorFunction {
    return [&linear, function](Tensors x) -> Tensors {
      const precision::AutocastScope autocast(at::kCPU, at::kBFloat16);
      return {linear(function(std::move(x))[0])};
    };
  };
  const Tensors inputs{at::randn({4, kWidth})};
  const auto plain = see(around(inner), inputs, linear->parameters());
  const auto got = see(around(checkpointed(inner, GetParam().options)), inputs, linear->parameters());
  expect_equal_bits(got.outputs, plain.outputs, "output");
  expect_equal_bits(got.of_inputs, plain.of_inputs, "input");
  // Without the shared cast the two gradients of the weight are summed in fp32, not in bf16.
  for (size_t i = 0; i < plain.of_params.size(); ++i) {
    const double largest = plain.of_params[i].abs().max().item<double>();
    EXPECT_LE((got.of_params[i] - plain.of_params[i]).abs().max().item<double>(), largest / 64) << i;
  }
}

TEST_P(Checkpoint, TakesNestedRegions) {
  Block first, second;
  Tensors params = first.parameters();
  for (const auto& param : second.parameters()) params.push_back(param);
  const TensorFunction a = [&](Tensors x) -> Tensors { return {drop(first(x[0]))}; };
  const TensorFunction b = [&](Tensors x) -> Tensors { return {drop(second(x[0]))}; };
  const Tensors inputs{at::randn({2, 6, kWidth})};
  const auto plain = see([&](Tensors x) { return drop_all(b(a(x))); }, inputs, params);
  const auto& options = GetParam().options;
  const auto nested = checkpointed(
      [&](Tensors x) { return drop_all(checkpointed(b, options)(checkpointed(a, options)(std::move(x)))); },
      options);
  expect_equal_bits(see(nested, inputs, params), plain);
}

TEST_P(Checkpoint, TakesSeveralRegionsInARow) {
  Block block;
  const TensorFunction one = [&](Tensors x) -> Tensors { return {drop(block(x[0]))}; };
  const Tensors inputs{at::randn({2, 6, kWidth})};
  const auto plain = see([&](Tensors x) { return one(one(one(x))); }, inputs, block.parameters());
  const auto region = checkpointed(one, GetParam().options);
  expect_equal_bits(see([&](Tensors x) { return region(region(region(x))); }, inputs, block.parameters()),
                    plain);
}

TEST_P(Checkpoint, TakesIntegersOutputsWithoutAGradientAndUnusedOnes) {
  torch::nn::Embedding words(10, kWidth);
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 4, 3));
  Tensors params = words->parameters();
  for (const auto& param : conv->parameters()) params.push_back(param);
  const TensorFunction function = [&](Tensors x) -> Tensors {
    const auto h = words(x[1]).sum() + conv(x[0]).relu_();
    return {h, x[1] + 1, x[0] * 2};
  };
  const TensorFunction without_last = [](Tensors x) -> Tensors { return {x[0], x[1]}; };
  const Tensors inputs{at::randn({2, 3, 5, 5}), at::randint(10, {4}, at::kLong)};
  const auto plain = see([&](Tensors x) { return without_last(function(x)); }, inputs, params);
  const auto region = checkpointed(function, GetParam().options);
  expect_equal_bits(see([&](Tensors x) { return without_last(region(x)); }, inputs, params), plain);
}

TEST_P(Checkpoint, SplitsItsBackwardInHalves) {
  Block block;
  const auto region =
      checkpointed([&](Tensors x) -> Tensors { return {drop(block(x[0]))}; }, GetParam().options);
  const auto split = expect_same_in_halves([&](Tensors x) { return region({x[0] * 2}); },
                                           {at::randn({2, 6, kWidth})}, block.parameters());
  EXPECT_EQ(split.num_halves, 4U);
}

TEST_P(Checkpoint, IsAPlainCallWithoutGradients) {
  int count = 0;
  const at::NoGradGuard no_grad;
  const auto y = checkpointed(counted([](Tensors x) -> Tensors { return {x[0] * 2}; }, count),
                              GetParam().options)({at::randn({4}).requires_grad_()});
  EXPECT_FALSE(y[0].requires_grad());
  EXPECT_EQ(count, 1);
}

TEST_P(Checkpoint, PutsTheStateBackIfTheRecomputationThrows) {
  int calls = 0;
  const auto region = checkpointed(
      [&](Tensors x) -> Tensors {
        if (++calls == 2) throw std::runtime_error("the second call");
        return {drop(x[0]).exp()};
      },
      GetParam().options);
  const auto y = region({at::randn({4}).requires_grad_()})[0];
  const auto state = device::cpu_rng_state();
  EXPECT_THROW(torch::autograd::backward({y.sum()}, {}), std::runtime_error);
  EXPECT_TRUE(device::cpu_rng_state().equal(state));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_EQ(autograd::current_saved_tensor_hooks(), nullptr);
}

TEST(CheckpointCalls, TakeAnyArgumentsAndReturnAnyValue) {
  struct Hidden {
    at::Tensor x;
    at::Tensor mask;
    int64_t layer;
  };
  const auto weight = at::randn({4, 4}).requires_grad_();
  const auto step = [&](Hidden h, double scale, const std::string& name, std::optional<at::Tensor> extra) {
    EXPECT_EQ(name, "layer");
    auto x = h.x.matmul(weight).tanh() * scale;
    if (extra) x = x + *extra;
    return std::make_tuple(Hidden{x, h.mask, h.layer + 1}, x.sum(), int64_t{5});
  };
  const auto run = [&](bool is_checkpointed) {
    const auto x = (at::arange(4).to(at::kFloat) / 4).requires_grad_();
    const Hidden h{x, at::ones({4}), 1};
    auto [out, sum, five] =
        is_checkpointed ? checkpoint(step, h, 0.5, std::string("layer"), std::optional<at::Tensor>(x * 2))
                        : step(h, 0.5, "layer", x * 2);
    EXPECT_EQ(out.layer, 2);
    EXPECT_EQ(five, 5);
    EXPECT_TRUE(out.mask.defined());
    torch::autograd::backward({(out.x * out.mask).sum() + sum}, {});
    return Tensors{x.grad(), std::exchange(weight.mutable_grad(), at::Tensor())};
  };
  const Tensors plain = run(false);
  expect_equal_bits(run(true), plain, "gradient");
}

TEST(CheckpointCalls, MayReturnNothingAndTakeModules) {
  torch::nn::Linear linear(4, 4);
  int calls = 0;
  checkpoint([&](torch::nn::Linear module, int64_t) { calls += module->weight.size(0); }, linear, 3);
  EXPECT_EQ(calls, 4);
  const at::Tensor y = checkpointing::non_reentrant_checkpoint(
      [](torch::nn::Linear module, at::Tensor x) { return module(x); }, linear, at::ones({2, 4}));
  torch::autograd::backward({y.sum()}, {});
  EXPECT_TRUE(linear->weight.grad().defined());  // no input needs a gradient
}

TEST(CheckpointCalls, FreeInputsThatNothingElseHolds) {
  at::Tensor kept = at::randn({4}).requires_grad_();
  auto x = kept * 2;
  const auto storage = x.storage().getWeakStorageImpl();
  auto y = checkpoint([](at::Tensor h) { return h.exp().sin(); }, std::move(x));
  x = at::Tensor();
  EXPECT_GT(storage.use_count(), 0U);
  torch::autograd::backward({y.sum()}, {});
  EXPECT_EQ(storage.use_count(), 0U);
}

TEST(CheckpointCalls, KeepTheirGraphForASecondBackward) {
  int count = 0;
  const auto x = at::randn({4}).requires_grad_();
  const auto y =
      checkpointed(counted([](Tensors v) -> Tensors { return {v[0].exp().sin()}; }, count))({x})[0];
  torch::autograd::backward({y.sum()}, {}, /*retain_graph=*/true);
  const auto once = x.grad().clone();
  torch::autograd::backward({y.sum()}, {});
  EXPECT_TRUE(x.grad().equal(once * 2));
  EXPECT_EQ(count, 2);
}

TEST(CheckpointCalls, RunNoFurtherThanTheLastSavedTensor) {
  int ends = 0;
  const auto x = at::randn({4}).requires_grad_();
  const auto y = checkpoint(
      [&](at::Tensor h) {
        const auto saved = h.exp();
        const auto sum = saved + 1;  // saves nothing
        ++ends;
        return sum;
      },
      x);
  torch::autograd::backward({y.sum()}, {});
  EXPECT_EQ(ends, 1);
  EXPECT_TRUE(x.grad().equal(x.detach().exp()));
}

TEST(CheckpointCalls, RefuseARecomputationThatDiffers) {
  const auto changing = [](auto first, auto second) {
    auto calls = std::make_shared<int>(0);
    return [=](Tensors x) -> Tensors { return (*calls)++ == 0 ? first(x) : second(x); };
  };
  const auto two = [](Tensors x) -> Tensors { return {x[0].exp().exp()}; };
  const auto one = [](Tensors x) -> Tensors { return {x[0].exp()}; };
  const auto smaller = [](Tensors x) -> Tensors { return {x[0].slice(0, 0, 2).exp().exp()}; };
  const auto x = at::randn({4}).requires_grad_();
  const RegionOptions named{.name = "layer 3"};
  auto y = checkpointed(changing(two, one), named)({x})[0];
  EXPECT_ERROR(UsageError, torch::autograd::backward({y.sum()}, {}), "layer 3", "saved 1 of the 2");
  y = checkpointed(changing(two, smaller), named)({x})[0];
  EXPECT_ERROR(UsageError, torch::autograd::backward({y.sum()}, {}), "layer 3", "[2]", "[4]");
  const auto product = [](Tensors v) -> Tensors {
    return {v[0].exp() * at::mm(at::ones({1, 4}), at::ones({4, 1}))};
  };
  const auto batched = [](Tensors v) -> Tensors {
    return {v[0].exp() * at::bmm(at::ones({1, 1, 4}), at::ones({1, 4, 1}))};
  };
  y = checkpointed(changing(product, batched), {.keep = products()})({x})[0];
  EXPECT_ERROR(UsageError, torch::autograd::backward({y.sum()}, {}), "aten::bmm", "aten::mm");
}

TEST(CheckpointCalls, RecomputeToTheEndIfTold) {
  int calls = 0;
  const auto region =
      checkpointed([&](Tensors x) -> Tensors { return {++calls == 1 ? x[0].exp() : x[0].exp().exp()}; },
                   {.stop_early = false, .name = "layer 3"});
  const auto x = at::randn({4}).requires_grad_();
  EXPECT_ERROR(UsageError, torch::autograd::backward({region({x})[0].sum()}, {}), "layer 3",
               "saved more than the 1");
}

TEST(CheckpointCalls, MayRunABackwardInsideTheirForward) {
  const auto weight = at::randn({4}).requires_grad_();
  const TensorFunction penalized = [&](Tensors x) -> Tensors {
    const auto inner = x[0].detach().requires_grad_();
    const auto slope = torch::autograd::grad({(inner.sin() * weight).sum()}, {inner}, {}, std::nullopt,
                                             /*create_graph=*/true)[0];
    return {x[0].exp() * slope.pow(2)};
  };
  const Tensors inputs{at::randn({4})};
  const auto plain = see(penalized, inputs, {weight});
  expect_equal_bits(see(checkpointed(penalized), inputs, {weight}), plain);
  expect_equal_bits(see(checkpointed(penalized, {.stop_early = false}), inputs, {weight}), plain);
  EXPECT_ERROR(UsageError, see(checkpointed(penalized, {.keep = products()}), inputs, {weight}),
               "RegionOptions::keep", "leave keep out");
}

TEST(CheckpointCalls, SeeInputsThatWereWrittenInPlace) {
  const auto x = at::randn({4}).requires_grad_() * 1;
  const auto y = checkpoint([](at::Tensor h) { return h.exp(); }, x);
  x.mul_(2);
  EXPECT_ERROR(UsageError, torch::autograd::backward({y.sum()}, {}), "written in place", "clone()");
}

TEST(CheckpointCalls, SeeSavedTensorsThatWereWrittenInPlace) {
  const auto y = checkpoint(
      [](at::Tensor h) {
        const auto e = h.exp();
        const auto z = e * 1;
        e.mul_(2);
        return z.exp();
      },
      at::randn({4}).requires_grad_());
  EXPECT_ERROR(UsageError, torch::autograd::backward({y.sum()}, {}), "written in place");
}

TEST(CheckpointCalls, RefuseReentrantOnesThatCannotWork) {
  const auto x = at::randn({4}).requires_grad_();
  const auto region = checkpointed([](Tensors v) -> Tensors { return {v[0].exp()}; },
                                   {.use_reentrant = true, .name = "layer 3"});
  const auto y = region({x})[0];
  EXPECT_ERROR(UsageError, torch::autograd::grad({y.sum()}, {x}), "not compatible with .grad()", "layer 3",
               "backward()");
  EXPECT_ERROR(UsageError,
               checkpointed([](Tensors v) { return v; }, {.use_reentrant = true, .keep = products()})({x}),
               "RegionOptions::keep", "use_reentrant = false");
  std::string warning;
  const auto before = log::set_sink([&](log::Level, const std::string& line) { warning += line; });
  region({at::randn({4})});
  log::set_sink(before);
  EXPECT_NE(warning.find("no input of it needs a gradient"), std::string::npos) << warning;
}

TEST(CheckpointCalls, WarnOnceARegionOfInputsWithoutAGradient) {
  const auto run = [](Tensors v) -> Tensors { return {v[0].exp()}; };
  int identities[2] = {};
  std::vector<std::string> warnings;
  const auto before = log::set_sink([&](log::Level, const std::string& line) { warnings.push_back(line); });
  for (int step = 0; step < 3; ++step) {
    for (const char* name : {"block 1", "block 2"})
      checkpointed(run, {.use_reentrant = true, .name = name})({at::randn({4})});
    for (const int& identity : identities)
      checkpointed(run, {.use_reentrant = true, .name = "a block", .identity = &identity})({at::randn({4})});
  }
  log::set_sink(before);
  ASSERT_EQ(warnings.size(), 4U);
  EXPECT_NE(warnings[0].find("block 1"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[1].find("block 2"), std::string::npos) << warnings[1];
}

TEST(Configure, RefusesOptionsThatContradictEachOther) {
  EXPECT_ERROR(UsageError, checkpointing::configure(CheckpointOptions{.contiguous_checkpointing = true}),
               "Contiguous Checkpointing is only available with partitioned activations",
               "partition_activations");
  EXPECT_ERROR(UsageError,
               checkpointing::configure({.partition_activations = true, .contiguous_checkpointing = true}),
               "Must specify the number of layers", "num_checkpoints");
  EXPECT_ERROR(UsageError, checkpointing::configure(CheckpointOptions{.num_checkpoints = 0}),
               "num_checkpoints is 0");
  checkpointing::configure(
      {.partition_activations = true, .contiguous_checkpointing = true, .num_checkpoints = 2});
  EXPECT_ERROR(UsageError, checkpointing::partition_activations_in_checkpoint(false),
               "partition_activations");
  EXPECT_TRUE(checkpointing::is_configured());
  checkpointing::configure();
}

TEST(Configure, LogsTheTimesOfRegions) {
  checkpointing::configure(CheckpointOptions{.synchronize = true, .profile = true});
  std::string lines;
  const auto before = log::set_sink([&](log::Level, const std::string& line) { lines += line + "\n"; });
  const auto x = at::randn({4}).requires_grad_();
  torch::autograd::backward(
      {checkpointed([](Tensors v) -> Tensors { return {v[0].exp()}; }, {.name = "layer 3"})({x})[0].sum()},
      {});
  log::set_sink(before);
  checkpointing::configure();
  EXPECT_NE(lines.find("forward of layer 3 took"), std::string::npos) << lines;
  EXPECT_NE(lines.find("recomputation of layer 3 took"), std::string::npos) << lines;
}

TEST(Selective, KeepsProductsAndRecomputesTheRest) {
  // Products come from forward, the dropout between them draws again.
  Block block;
  const auto policy =
      std::make_shared<SelectivePolicy>(std::vector<std::string>{"aten::mm", "aten::native_dropout"});
  const TensorFunction function = [&](Tensors x) -> Tensors { return {drop(block(drop(block(x[0]))))}; };
  const Tensors inputs{at::randn({2, 6, kWidth})};
  const auto plain = see(function, inputs, block.parameters());
  expect_equal_bits(see(checkpointed(function, {.keep = policy}), inputs, block.parameters()), plain);
}

TEST(Selective, ContinuesTheGeneratorAfterAKeptOperatorThatDrew) {
  const auto policy = std::make_shared<SelectivePolicy>(std::vector<std::string>{"aten::bernoulli"});
  const TensorFunction function = [&](Tensors x) -> Tensors {
    const auto mask = at::bernoulli(at::full({64}, 0.5));
    return {(x[0] * mask).exp() * at::rand({64})};
  };
  const Tensors inputs{at::randn({64})};
  const auto plain = see(function, inputs, {});
  expect_equal_bits(see(checkpointed(function, {.keep = policy}), inputs, {}), plain);
}

TEST(Selective, RefusesOperatorsThatCannotBeKept) {
  EXPECT_ERROR(UsageError, SelectivePolicy({"aten::no_such"}), "aten::no_such", "aten::mm");
  EXPECT_ERROR(UsageError, SelectivePolicy({"aten::add_"}), "aten::add_", "writes");
  EXPECT_ERROR(UsageError, SelectivePolicy({"aten::view"}), "aten::view", "returns a view");
}

}  // namespace
}  // namespace deepspeed::testing
