#include "deepspeed/ops/functional.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/activation/checkpointing.h"
#include "deepspeed/base/error.h"

#include "tests/ops/gradient_check.h"
#include "tests/support/error_of.h"

namespace deepspeed::ops {
namespace {

Tensors both(std::pair<at::Tensor, at::Tensor> pair) { return {pair.first, pair.second}; }

TEST(Functional, ReturnsTheGradientsOfNorms) {
  at::manual_seed(1);
  check_gradients([](const Tensors& t) { return Tensors{ops::layer_norm(t[0], t[1], t[2])}; },
                  {learned({2, 3, 7}), learned({7}), learned({7})}, "layer_norm");
  check_gradients([](const Tensors& t) { return Tensors{ops::layer_norm(t[0])}; }, {learned({3, 5})},
                  "without parameters");
  check_gradients([](const Tensors& t) { return both(add_layer_norm(t[0], t[1], t[2], t[3])); },
                  {learned({4, 5}), learned({4, 5}), learned({5}), learned({5})}, "add_layer_norm");
  check_gradients([](const Tensors& t) { return Tensors{ops::rms_norm(t[0], t[1])}; },
                  {learned({3, 7}), learned({7})}, "rms_norm");
  check_gradients([](const Tensors& t) { return both(add_rms_norm(t[0], t[1], t[2])); },
                  {learned({4, 5}), learned({4, 5}), learned({5})}, "add_rms_norm");
  // The sum alone goes on.
  check_gradients([](const Tensors& t) { return Tensors{add_layer_norm(t[0], t[1], t[2]).second}; },
                  {learned({4, 5}), learned({4, 5}), at::randn({5}, at::kDouble)}, "the sum");
}

TEST(Functional, ReturnsTheGradientsOfFeedForwardOperators) {
  at::manual_seed(2);
  check_gradients([](const Tensors& t) { return Tensors{bias_gelu(t[0], t[1])}; },
                  {learned({3, 9}), learned({9})}, "bias_gelu");
  check_gradients([](const Tensors& t) { return Tensors{bias_gelu(t[0])}; }, {learned({3, 9})}, "gelu");
  check_gradients([](const Tensors& t) { return Tensors{swiglu(t[0], t[1])}; },
                  {learned({3, 9}), learned({3, 9})}, "swiglu");
  check_gradients([](const Tensors& t) { return Tensors{swiglu(t[0])}; }, {learned({2, 3, 10})},
                  "swiglu of halves");
  check_gradients([](const Tensors& t) { return Tensors{swiglu(t[0].transpose(0, 1))}; }, {learned({10, 3})},
                  "swiglu of a transposed tensor");
}

TEST(Functional, AppliesDropoutsMaskToItsGradient) {
  check_gradients(
      [](const Tensors& t) {
        at::manual_seed(3);  // one mask for all calls
        return Tensors{ops::dropout(t[0], 0.4), bias_dropout_residual(t[0], t[1], t[2], 0.3)};
      },
      {learned({5, 7}), learned({7}), learned({5, 7})}, "dropout");
  const at::Tensor input = at::randn({40, 50});
  EXPECT_TRUE(ops::dropout(input, 0.5, false).is_same(input));
  EXPECT_TRUE(at::equal(bias_dropout_residual(input, {}, input, 0.5, false), input + input));
  at::manual_seed(4);
  const at::Tensor first = ops::dropout(input, 0.5), second = ops::dropout(input, 0.5);
  EXPECT_FALSE(at::equal(first, second));
  at::manual_seed(4);
  EXPECT_TRUE(at::equal(ops::dropout(input, 0.5), first));
}

TEST(Functional, DropsTheSameElementsInARecomputedRegion) {
  const at::Tensor input = at::randn({30, 40}).set_requires_grad(true);
  const auto region = [](at::Tensor x) { return ops::dropout(x, 0.5) * x; };
  at::manual_seed(5);
  const at::Tensor plain = region(input);
  const at::Tensor expected = torch::autograd::grad({plain.sum()}, {input})[0];
  at::manual_seed(5);
  const at::Tensor recomputed = checkpointing::checkpoint(region, input);
  at::rand({7});  // what moves the generator on before backward
  EXPECT_TRUE(at::equal(recomputed, plain));
  EXPECT_TRUE(at::equal(torch::autograd::grad({recomputed.sum()}, {input})[0], expected));
}

TEST(Functional, ReturnsTheSameLossInARegionThatKeepsProducts) {
  at::manual_seed(8);
  const at::Tensor hidden = at::randn({20, 6}).set_requires_grad(true),
                   weight = at::randn({9, 6}).set_requires_grad(true);
  const at::Tensor targets = at::randint(9, {20}, at::kLong);
  const auto region = [&](at::Tensor h, at::Tensor w) { return linear_cross_entropy(h * 2, w, targets); };
  const Tensors expected = torch::autograd::grad({region(hidden, weight)}, {hidden, weight});
  const auto policy = checkpointing::SelectivePolicy::matmuls_and_attention();
  const at::Tensor loss = checkpointing::checkpoint({.keep = policy}, region, hidden, weight);
  const Tensors recomputed = torch::autograd::grad({loss}, {hidden, weight});
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(recomputed[i], expected[i])) << i;
}

TEST(Functional, RefusesToBeNamedByASelectivePolicy) {
  swiglu(at::ones({2, 4}));
  EXPECT_ERROR(UsageError, checkpointing::SelectivePolicy({"deepspeed::swiglu"}), "deepspeed::swiglu",
               "returns nothing");
}

TEST(Functional, ReturnsTheGradientsOfAttentionOperators) {
  at::manual_seed(6);
  check_gradients([](const Tensors& t) { return Tensors{masked_softmax(t[0], t[1], 0.5)}; },
                  {learned({2, 2, 3, 5}), at::randn({2, 1, 1, 5}, at::kDouble)}, "masked_softmax");
  check_gradients([](const Tensors& t) { return Tensors{masked_softmax(t[0], t[1], 0.5)}; },
                  {learned({2, 2, 3, 5}), learned({2, 1, 5})}, "a mask that learns");
  const auto [cos, sin] = rotary_tables(3, 4, 10000, at::kCPU, 0, at::kDouble);
  for (const RotaryPairs pairs : {RotaryPairs::kHalves, RotaryPairs::kNeighbours}) {
    check_gradients(
        [&, &cos = cos, &sin = sin](const Tensors& t) {
          return Tensors{rotary_embedding(t[0].transpose(1, 2), cos, sin, pairs)};
        },
        {learned({2, 3, 2, 6})}, "rotary_embedding");
  }
}

TEST(Functional, ReturnsTheGradientOfAnEmbedding) {
  at::manual_seed(7);
  const at::Tensor indices = at::tensor({1, 4, 1, 0, 1, 3}, at::kLong).view({2, 3});
  check_gradients([&](const Tensors& t) { return Tensors{ops::embedding(t[0], indices)}; }, {learned({5, 3})},
                  "embedding");
  const at::Tensor weight = at::randn({5, 3}).set_requires_grad(true);
  const at::Tensor grad = torch::autograd::grad({ops::embedding(weight, indices, 1).sum()}, {weight})[0];
  EXPECT_EQ(grad[1].abs().sum().item<float>(), 0.0F);
  EXPECT_EQ(grad[4].sum().item<float>(), 3.0F);
}

TEST(Functional, TakesFp32ParametersWithSixteenBitInputs) {
  const at::Tensor input = at::randn({6, 8}).to(at::kBFloat16).set_requires_grad(true);
  const at::Tensor weight = at::rand({8}).set_requires_grad(true),
                   bias = at::rand({8}).set_requires_grad(true);
  const at::Tensor output = bias_gelu(ops::layer_norm(input, weight, bias), bias);
  EXPECT_EQ(output.scalar_type(), at::kBFloat16);
  const auto gradients = torch::autograd::grad({output.sum()}, {input, weight, bias});
  EXPECT_EQ(gradients[0].scalar_type(), at::kBFloat16);
  EXPECT_EQ(gradients[1].scalar_type(), at::kFloat);
  EXPECT_EQ(gradients[2].scalar_type(), at::kFloat);
}

struct NamedCall {
  std::string name;
  std::function<Tensors(const Tensors&)> function;
  Tensors inputs = {};
};

/// Every operator, with inputs whose leading dimensions are `sizes` and whose last one is 2 * `half`.
std::vector<NamedCall> calls_without_elements(std::vector<int64_t> sizes, int64_t half) {
  std::vector<int64_t> halves = sizes, whole = sizes;
  halves.push_back(half);
  whole.push_back(2 * half);
  const auto x = [&] { return learned(whole); };
  const auto parameter = [&] { return learned({2 * half}); };
  std::vector<NamedCall> calls = {
      {"layer_norm",
       [](auto& t) { return Tensors{ops::layer_norm(t[0], t[1], t[2])}; },
       {x(), parameter(), parameter()}},
      {"add_layer_norm",
       [](auto& t) { return both(add_layer_norm(t[0], t[1], t[2], t[3])); },
       {x(), x(), parameter(), parameter()}},
      {"rms_norm", [](auto& t) { return Tensors{ops::rms_norm(t[0], t[1])}; }, {x(), parameter()}},
      {"add_rms_norm", [](auto& t) { return both(add_rms_norm(t[0], t[1], t[2])); }, {x(), x(), parameter()}},
      {"bias_gelu", [](auto& t) { return Tensors{bias_gelu(t[0], t[1])}; }, {x(), parameter()}},
      {"swiglu", [](auto& t) { return Tensors{swiglu(t[0], t[1])}; }, {learned(halves), learned(halves)}},
      {"swiglu of halves", [](auto& t) { return Tensors{swiglu(t[0])}; }, {x()}},
      {"dropout", [](auto& t) { return Tensors{ops::dropout(t[0], 0.5)}; }, {x()}},
      {"bias_dropout_residual",
       [](auto& t) { return Tensors{bias_dropout_residual(t[0], t[1], t[2], 0.5)}; },
       {x(), parameter(), x()}},
      {"masked_softmax",
       [](auto& t) { return Tensors{masked_softmax(t[0], t[1], 0.5)}; },
       {x(), parameter()}},
      {"embedding",
       [sizes](auto& t) { return Tensors{ops::embedding(t[0], at::zeros(sizes, at::kLong))}; },
       {learned({3, 2 * half})}},
  };
  for (const Reduction reduction : {Reduction::kMean, Reduction::kSum, Reduction::kNone}) {
    for (const bool in_forward : {true, false}) {
      const LinearCrossEntropyOptions options{.reduction = reduction, .gradients_in_forward = in_forward};
      calls.push_back({"linear_cross_entropy",
                       [sizes, options](auto& t) {
                         return Tensors{
                             linear_cross_entropy(t[0], t[1], at::zeros(sizes, at::kLong), t[2], options)};
                       },
                       {x(), learned({3, 2 * half}), learned({3})}});
    }
  }
  return calls;
}

TEST(Functional, TakesTensorsWithoutElementsForwardAndBackward) {
  const auto check = [](const NamedCall& call) {
    SCOPED_TRACE(call.name + message(" of ", call.inputs[0].sizes()));
    at::Tensor sum = at::zeros({}, at::kDouble);
    for (const at::Tensor& output : call.function(call.inputs)) sum = sum + output.sum();
    const Tensors gradients = torch::autograd::grad({sum}, call.inputs);
    for (size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_EQ(gradients[i].sizes(), call.inputs[i].sizes()) << i;
      EXPECT_EQ(gradients[i].count_nonzero().item<int64_t>(), 0) << i;
    }
  };
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{0}, {2, 0}, {0, 2}, {2, 0, 3}}) {
    for (const NamedCall& call : calls_without_elements(sizes, 4)) check(call);
  }
  // Rows without elements have a loss, which alone is not 0.
  for (const NamedCall& call : calls_without_elements({2, 3}, 0)) {
    if (call.name != "linear_cross_entropy") check(call);
  }
  for (const std::vector<int64_t>& sizes :
       std::vector<std::vector<int64_t>>{{0, 2, 3, 4}, {2, 0, 3, 4}, {2, 2, 0, 4}}) {
    const RotaryTables tables = rotary_tables(sizes[2], 4, 10000, at::kCPU, 0, at::kDouble);
    check({"rotary_embedding",
           [&](auto& t) { return Tensors{rotary_embedding(t[0], tables.cos, tables.sin)}; },
           {learned(sizes)}});
  }
}

TEST(Functional, NamesTheOperatorAndTheArgumentThatIsUndefined) {
  const at::Tensor x = at::zeros({2, 4}), none, indices = at::zeros({2}, at::kLong);
  const at::Tensor heads = at::zeros({1, 1, 2, 4}), table = at::zeros({2, 2});
  const std::pair<std::string, std::function<void()>> calls[] = {
      {"layer_norm: input", [&] { ops::layer_norm(none); }},
      {"add_layer_norm: input", [&] { add_layer_norm(none, x); }},
      {"add_layer_norm: residual", [&] { add_layer_norm(x, none); }},
      {"rms_norm: input", [&] { ops::rms_norm(none); }},
      {"add_rms_norm: input", [&] { add_rms_norm(none, x); }},
      {"add_rms_norm: residual", [&] { add_rms_norm(x, none); }},
      {"bias_gelu: input", [&] { bias_gelu(none); }},
      {"swiglu: gate", [&] { swiglu(none, x); }},
      {"swiglu: up", [&] { swiglu(x, none); }},
      {"swiglu: gate_and_up", [&] { swiglu(none); }},
      {"dropout: input", [&] { ops::dropout(none); }},
      {"dropout: input", [&] { ops::dropout(none, 0.5, /*training=*/false); }},
      {"bias_dropout_residual: input", [&] { bias_dropout_residual(none, {}, x); }},
      {"bias_dropout_residual: residual", [&] { bias_dropout_residual(x, {}, none); }},
      {"masked_softmax: scores", [&] { masked_softmax(none); }},
      {"rotary_embedding: input", [&] { rotary_embedding(none, table, table); }},
      {"rotary_embedding: cos", [&] { rotary_embedding(heads, none, table); }},
      {"rotary_embedding: sin", [&] { rotary_embedding(heads, table, none); }},
      {"embedding: weight", [&] { ops::embedding(none, indices); }},
      {"embedding: indices", [&] { ops::embedding(x, none); }},
      {"linear_cross_entropy: hidden", [&] { linear_cross_entropy(none, x, indices); }},
      {"linear_cross_entropy: weight", [&] { linear_cross_entropy(x, none, indices); }},
      {"linear_cross_entropy: targets", [&] { linear_cross_entropy(x, x, none); }},
  };
  for (const auto& [text, call] : calls)
    EXPECT_ERROR(UsageError, call(), text + " is undefined, expected a tensor");
  // What may be left out may be undefined as well.
  EXPECT_TRUE(at::equal(ops::layer_norm(x, none, none), ops::layer_norm(x)));
  EXPECT_TRUE(at::equal(bias_dropout_residual(x, none, x, 0), x + x));
  EXPECT_TRUE(at::equal(masked_softmax(x, none), masked_softmax(x)));
  EXPECT_TRUE(at::equal(linear_cross_entropy(x, x, indices, none), linear_cross_entropy(x, x, indices)));
}

TEST(Functional, RefusesASecondDerivative) {
  const at::Tensor input = at::randn({4, 6}).set_requires_grad(true), tables = at::zeros({2, 1});
  const at::Tensor heads = input.view({1, 2, 2, 6}), targets = at::zeros({4}, at::kLong);
  const std::pair<std::string, at::Tensor> results[] = {
      {"layer_norm", ops::layer_norm(input)},
      {"rms_norm", add_rms_norm(input, input).first},
      {"bias_gelu", bias_gelu(input)},
      {"swiglu", swiglu(input)},
      {"swiglu", swiglu(input, input)},
      {"dropout", ops::dropout(input)},
      {"masked_softmax", masked_softmax(input)},
      {"rotary_embedding", rotary_embedding(heads, tables, tables)},
      {"embedding", ops::embedding(input, targets)},
      {"linear_cross_entropy", linear_cross_entropy(input, at::ones({3, 6}), targets)},
  };
  for (const auto& [op, result] : results) {
    EXPECT_ERROR(NotSupportedError,
                 torch::autograd::grad({result.sum()}, {input}, {}, /*retain_graph=*/true,
                                       /*create_graph=*/true),
                 op + " has no second derivative", "ran with create_graph", "run it without");
  }
}

TEST(Functional, NamesTheArgumentThatDoesNotFit) {
  const at::Tensor input = at::zeros({2, 7});
  EXPECT_ERROR(UsageError, swiglu(input), "gate_and_up has shape [2, 7]", "[..., 2 n]");
  EXPECT_ERROR(UsageError, ops::dropout(input, 2), "ratio is 2");
  EXPECT_ERROR(UsageError, ops::embedding(input, at::zeros({1}, at::kLong), 2), "padding_index is 2",
               "below 2");
  EXPECT_ERROR(UsageError, ops::layer_norm(input, at::ones({6})), "weight has shape [6]", "expected [7]");
  const at::Tensor table = at::zeros({1, 1}).set_requires_grad(true);
  EXPECT_ERROR(UsageError, rotary_embedding(at::zeros({1, 1, 1, 2}), table, table), "pass their detach()");
}

}  // namespace
}  // namespace deepspeed::ops
