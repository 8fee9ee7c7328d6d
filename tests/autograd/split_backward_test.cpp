#include "deepspeed/autograd/split_backward.h"

#include <stdexcept>
#include <string>

#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rsqrt.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/nn/functional/dropout.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>

#include "deepspeed/autograd/node_handle.h"
#include "deepspeed/base/error.h"
#include "deepspeed/precision/autocast.h"

#include "tests/autograd/backward_pair.h"
#include "tests/autograd/gpt_block.h"
#include "tests/support/error_of.h"

namespace deepspeed::testing {
namespace {

using autograd::backward_inputs;
using autograd::NodeHandle;
using autograd::WeightBackward;

class SplitBackward : public ::testing::Test {
 protected:
  SplitBackward() { device::seed_generators(1); }
};

TEST_F(SplitBackward, GivesTheBitsOfAnOrdinaryBackward) {
  Block block;
  const auto split = expect_same_in_halves([&](Tensors x) -> Tensors { return {block(x[0])}; },
                                           {at::randn({2, 6, kWidth})}, block.parameters());
  EXPECT_EQ(split.num_halves, 4U);  // one a linear layer: their products leave the path
}

TEST_F(SplitBackward, TakesDropout) {
  Block block;
  expect_same_in_halves(
      [&](Tensors x) -> Tensors {
        return {
            torch::nn::functional::dropout(block(x[0]), torch::nn::functional::DropoutFuncOptions().p(0.3))};
      },
      {at::randn({2, 6, kWidth})}, block.parameters());
}

TEST_F(SplitBackward, TakesAutocast) {
  Block block;
  const auto split = expect_same_in_halves(
      [&](Tensors x) -> Tensors {
        const precision::AutocastScope autocast(at::kCPU, at::kBFloat16);
        return {block(x[0])};
      },
      {at::randn({2, 6, kWidth})}, block.parameters());
  EXPECT_EQ(split.num_halves, 4U);
}

TEST_F(SplitBackward, TakesConvolutionNormsAndWritesInPlace) {
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(3, 4, 3).padding(1));
  torch::nn::BatchNorm2d norm(4);
  const auto gain = at::randn({4}).requires_grad_();
  Tensors params = conv->parameters();
  for (const auto& param : norm->parameters()) params.push_back(param);
  params.push_back(gain);
  const auto split = expect_same_in_halves(
      [&](Tensors x) -> Tensors {
        auto h = norm(conv(x[0]));
        h.relu_();
        const auto view = h.permute({0, 2, 3, 1});
        return {(view * at::rsqrt(view.pow(2).mean(-1, true) + 1e-5) * gain).flatten(1)};
      },
      {at::randn({2, 3, 5, 5})}, params);
  EXPECT_EQ(split.num_halves, 1U);
}

TEST_F(SplitBackward, TakesTheFirstStageWhichHasNoInputWithAGradient) {
  torch::nn::Linear linear(kWidth, kWidth);
  torch::nn::Embedding words(10, kWidth);
  Tensors params = linear->parameters();
  params.push_back(words->weight);
  const auto split = expect_same_in_halves(
      [&](Tensors x) -> Tensors {
        return {linear(words(x[0])), at::relu(linear(words(x[0])))};
      },
      {at::randint(10, {4, 6}, at::kLong)}, params);
  EXPECT_FALSE(split.of_inputs[0].defined());
}

TEST_F(SplitBackward, TakesOutputsOfOnlyParametersAndOutputsThatAreInputs) {
  torch::nn::Linear linear(kWidth, kWidth);
  const auto weight = at::randn({kWidth}).requires_grad_();
  Tensors params = linear->parameters();
  params.push_back(weight);
  expect_same_in_halves(
      [&](Tensors x) -> Tensors {
        return {linear(x[0]), weight * 2, (weight * weight).sum(), x[1]};
      },
      {at::randn({4, kWidth}), at::randn({3})}, params);
}

TEST_F(SplitBackward, TakesSeveralInputsOfWhichOneIsUnused) {
  torch::nn::Linear linear(kWidth, kWidth);
  const auto split = expect_same_in_halves(
      [&](Tensors x) -> Tensors {
        return {linear(x[0]) * x[1], linear(x[1])};
      },
      {at::randn({4, kWidth}), at::randn({4, kWidth}), at::randn({4})}, linear->parameters());
  EXPECT_FALSE(split.of_inputs[2].defined());
}

TEST_F(SplitBackward, SumsASharedWeightWithinOneRounding) {
  // The embedding is tied to the output, and the linear layer is used twice.
  torch::nn::Linear linear(kWidth, kWidth);
  torch::nn::Embedding words(10, kWidth);
  Tensors params = linear->parameters();
  params.push_back(words->weight);
  const TensorFunction function = [&](Tensors x) -> Tensors {
    const auto h = linear(at::relu(linear(x[0])) + words(x[1]));
    return {at::linear(h, words->weight), h.sum()};
  };
  const Tensors inputs{at::randn({4, 6, kWidth}), at::randint(10, {4, 6}, at::kLong)};
  const auto plain = plain_gradients(function, inputs, params);
  const auto split = split_gradients(function, inputs, params);
  expect_equal_bits(split.of_inputs, plain.of_inputs, "input");
  for (size_t i = 0; i < params.size(); ++i) {
    const double largest = plain.of_params[i].abs().max().item<double>();
    const double off = (split.of_params[i] - plain.of_params[i]).abs().max().item<double>();
    EXPECT_LE(off, 2.4e-7 * largest) << i;  // two roundings of fp32
  }
}

/// A product that computes both gradients at once, whatever is asked.
struct Opaque : torch::autograd::Function<Opaque> {
  static inline int calls = 0;
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return x.matmul(weight);
  }
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
    ++calls;
    const auto saved = context->get_saved_variables();
    return {gradients[0].matmul(saved[1].t()), saved[0].t().matmul(gradients[0])};
  }
};

TEST_F(SplitBackward, RunsANodeThatCannotSplitOnce) {
  const auto weight = at::randn({kWidth, kWidth}).requires_grad_();
  Opaque::calls = 0;
  const auto split =
      expect_same_in_halves([&](Tensors x) -> Tensors { return {Opaque::apply(at::relu(x[0]), weight)}; },
                            {at::randn({4, kWidth})}, {weight});
  EXPECT_EQ(Opaque::calls, 2);  // one in the ordinary backward
  EXPECT_EQ(split.num_halves, 0U);
}

TEST_F(SplitBackward, CallsHooksOfTensorsOnce) {
  torch::nn::Linear linear(kWidth, kWidth);
  int calls = 0;
  const auto scale_by = [&](double factor) {
    return [&calls, factor](const at::Tensor& gradient) {
      ++calls;
      return gradient * factor;
    };
  };
  expect_same_in_halves(
      [&](Tensors x) -> Tensors {
        const auto y = linear(x[0]);
        y.register_hook(scale_by(2));
        const auto h = at::relu(y);
        h.register_hook(scale_by(3));
        return {linear(h)};
      },
      {at::randn({4, kWidth})}, linear->parameters());
  EXPECT_EQ(calls, 4);  // two in each backward
}

struct CountCalls : torch::autograd::FunctionPostHook {
  explicit CountCalls(int& given) : count(given) {}
  Tensors operator()(const Tensors& outputs, const Tensors&) override {
    ++count;
    return outputs;
  }
  int& count;
};

TEST_F(SplitBackward, AccumulatesOnceAParameterInTheSecondHalf) {
  torch::nn::Linear linear(kWidth, kWidth);
  int accumulated = 0;
  std::vector<NodeHandle> accumulators;  // a parameter does not hold its own
  for (const auto& param : linear->parameters()) {
    accumulators.push_back(torch::autograd::impl::grad_accumulator(param));
    accumulators.back()->add_post_hook(std::make_unique<CountCalls>(accumulated));
  }
  const auto x = at::randn({4, kWidth}).requires_grad_();
  WeightBackward later;
  const auto y = linear(at::relu(linear(x)));
  backward_inputs({y}, {at::ones_like(y)}, {x}, later);
  EXPECT_EQ(accumulated, 0);
  later.run();
  EXPECT_EQ(accumulated, 2);
}

bool lives(const c10::weak_intrusive_ptr<c10::StorageImpl>& storage) { return storage.use_count() > 0; }

TEST_F(SplitBackward, FreesInEachHalfWhatTheOtherDoesNotNeed) {
  torch::nn::Linear linear(kWidth, kWidth);
  const auto x = at::randn({4, kWidth}).requires_grad_();
  auto by_product = linear(x).tanh();               // the product's input
  auto by_elements = linear(by_product).sigmoid();  // saved by the sigmoid alone
  const auto product_input = by_product.storage().getWeakStorageImpl();
  const auto elements = by_elements.storage().getWeakStorageImpl();
  auto y = by_elements * 2;
  const auto gradient = at::ones_like(y);
  by_product = by_elements = at::Tensor();
  WeightBackward later;
  EXPECT_TRUE(lives(elements));
  backward_inputs({y}, {gradient}, {x}, later);
  EXPECT_FALSE(lives(elements));
  EXPECT_TRUE(lives(product_input));
  y = at::Tensor();
  later.run();
  EXPECT_FALSE(lives(product_input));
}

TEST_F(SplitBackward, FreesAllIfTheSecondHalfIsDropped) {
  torch::nn::Linear linear(kWidth, kWidth);
  const auto x = at::randn({4, kWidth}).requires_grad_();
  auto h = linear(x).tanh();
  const auto storage = h.storage().getWeakStorageImpl();
  {
    WeightBackward later;
    const auto y = linear(std::exchange(h, at::Tensor()));
    backward_inputs({y}, {at::ones_like(y)}, {x}, later);
  }
  EXPECT_FALSE(lives(storage));
}

struct CountAccumulated : torch::autograd::PostAccumulateGradHook {
  explicit CountAccumulated(int& given) : count(given) {}
  void operator()(const torch::autograd::Variable&) override { ++count; }
  int& count;
};

TEST_F(SplitBackward, CallsTheHooksAfterAccumulationOnceAParameter) {
  torch::nn::Linear linear(kWidth, kWidth);
  int accumulated = 0;
  for (const auto& param : linear->parameters()) {
    torch::autograd::impl::set_post_acc_grad_hooks(param, std::make_unique<CountAccumulated>(accumulated));
  }
  const auto x = at::randn({2, 3, kWidth}).requires_grad_();
  WeightBackward later;
  const auto y = linear(at::relu(linear(x)));  // each parameter twice
  backward_inputs({y}, {at::ones_like(y)}, {x}, later);
  EXPECT_EQ(accumulated, 0);
  later.run();
  EXPECT_EQ(accumulated, 2);
}

TEST_F(SplitBackward, LetsSecondHalvesOfMicroBatchesWait) {
  Block block;
  const Tensors params = block.parameters();
  const auto run = [&](bool in_halves) {
    std::vector<WeightBackward> later(3);
    for (size_t i = 0; i < later.size(); ++i) {
      device::seed_generators(i);
      const auto x = at::randn({2, 6, kWidth}).requires_grad_();
      const auto y = block(x);
      if (in_halves) {
        backward_inputs({y}, {at::ones_like(y)}, {x}, later[i]);
      } else {
        torch::autograd::backward({y}, {at::ones_like(y)});
      }
    }
    for (auto& half : later) half.run();
    return take_gradients(params);
  };
  const auto plain = run(false);
  expect_equal_bits(run(true), plain, "parameter");
}

TEST_F(SplitBackward, RunsTheSecondHalfOnce) {
  torch::nn::Linear linear(kWidth, kWidth);
  const auto x = at::randn({4, kWidth}).requires_grad_();
  const auto y = linear(x);
  WeightBackward later;
  EXPECT_TRUE(later.empty());
  backward_inputs({y}, {at::ones_like(y)}, {x}, later);
  EXPECT_FALSE(later.empty());
  later.run();
  EXPECT_TRUE(later.empty());
  const auto once = linear->weight.grad().clone();
  later.run();
  EXPECT_TRUE(linear->weight.grad().equal(once));
}

TEST_F(SplitBackward, RefusesASecondBackwardOverTheGraph) {
  torch::nn::Linear linear(kWidth, kWidth);
  const auto x = at::randn({4, kWidth}).requires_grad_();
  const auto y = linear(x);
  WeightBackward later;
  backward_inputs({y}, {at::ones_like(y)}, {x}, later);
  EXPECT_ERROR(UsageError, torch::autograd::backward({y}, {at::ones_like(y)}), "backward_inputs()",
               "all outputs of a forward at once");
}

struct FailingNode : torch::autograd::Function<FailingNode> {
  static inline bool fails = true;
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x,
                            const at::Tensor& weight) {
    return x * weight;
  }
  static Tensors backward(torch::autograd::AutogradContext*, Tensors gradients) {
    if (fails) throw std::runtime_error("a node fails");
    return {gradients[0], gradients[0].sum(0)};
  }
};

TEST_F(SplitBackward, LeavesTheGraphAsItWasIfANodeThrows) {
  torch::nn::Linear linear(kWidth, kWidth);
  const auto weight = at::randn({kWidth}).requires_grad_();
  const auto x = at::randn({4, kWidth}).requires_grad_();
  const auto y = linear(FailingNode::apply(linear(x), weight));
  WeightBackward later;
  FailingNode::fails = true;
  EXPECT_THROW(backward_inputs({y}, {at::ones_like(y)}, {x}, later), std::runtime_error);
  EXPECT_TRUE(later.empty());
  // What had not run yet is whole: an ordinary backward over it reaches the weight of the node that failed.
  FailingNode::fails = false;
  torch::autograd::backward({y}, {at::ones_like(y)});
  EXPECT_TRUE(weight.grad().defined());
  EXPECT_TRUE(linear->weight.grad().defined());
  EXPECT_TRUE(x.grad().defined());
}

/// Recomputes a function in backward, by a backward of its own.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            std::function<at::Tensor(at::Tensor)> given) {
    context->save_for_backward({x});
    function() = given;
    return given(x);
  }
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
    const at::AutoGradMode enable(true);
    const auto x = context->get_saved_variables()[0].detach().requires_grad_();
    const auto y = function()(x);
    if (auto* later = autograd::current_weight_backward()) {
      return {backward_inputs({y}, gradients, {x}, *later)[0], at::Tensor()};
    }
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), at::Tensor()};
  }
  static std::function<at::Tensor(at::Tensor)>& function() {
    static std::function<at::Tensor(at::Tensor)> value;
    return value;
  }
};

TEST_F(SplitBackward, TellsANodeWithABackwardOfItsOwnWhereTheSecondHalfGoes) {
  Block block;
  const auto split = expect_same_in_halves(
      [&](Tensors x) -> Tensors {
        return {Recomputed::apply(x[0] * 1.0, [&](at::Tensor h) { return block(h); })};
      },
      {at::randn({2, 6, kWidth})}, block.parameters());
  EXPECT_EQ(split.num_halves, 4U);
  EXPECT_EQ(autograd::current_weight_backward(), nullptr);
}

TEST_F(SplitBackward, RefusesWhatDoesNotFit) {
  const auto x = at::randn({4}).requires_grad_();
  WeightBackward later;
  EXPECT_ERROR(UsageError, backward_inputs({x * 2}, {}, {x}, later), "1 outputs and 0 gradients");
  const auto inner = x * 2;
  EXPECT_ERROR(UsageError, backward_inputs({inner * 2}, {x}, {inner}, later), "input 0", "expected a leaf",
               "detach().requires_grad_()");
}

}  // namespace
}  // namespace deepspeed::testing
