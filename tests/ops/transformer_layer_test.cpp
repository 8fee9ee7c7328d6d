// The layer's arithmetic against plain operators in float64, at random sizes, options and dtypes.
#include "deepspeed/ops/transformer/transformer_layer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/kernels/ops/dropout.h"

#include "tests/ops/transformer_reference.h"
#include "tests/support/error_of.h"

namespace deepspeed::testing {
namespace {

using ops::DeepSpeedTransformerConfig;
using ops::transformer_layer;
using ops::TransformerWeights;

struct LayerCase {
  DeepSpeedTransformerConfig config;
  int64_t batch, sequence;
  at::ScalarType dtype;
  int mask_kind;  // 0: none, 1: [B, 1, 1, S], 2: [1, 1, S, S], 3: [B, heads, S, S]
  bool strided;   // hidden_states are no contiguous tensor
  bool fp32_vectors;

  std::string text() const {
    return message(config.to_dict().dump(), " batch ", batch, " sequence ", sequence, " ", dtype, " mask ",
                   mask_kind, strided ? " strided" : "", fp32_vectors ? " vectors in fp32" : "");
  }
};

class Choices {
 public:
  explicit Choices(uint64_t seed) : generator_(seed) {}
  template <class T>
  T one_of(const std::vector<T>& values) {
    return values[generator_() % values.size()];
  }
  int64_t up_to(int64_t most) { return 1 + static_cast<int64_t>(generator_() % static_cast<uint64_t>(most)); }
  bool coin() { return generator_() % 2 == 0; }

 private:
  std::mt19937_64 generator_;
};

LayerCase random_case(uint64_t seed) {
  Choices choose(seed);
  LayerCase made{};
  made.config.heads = choose.one_of<int64_t>({1, 2, 3, 5});
  made.dtype = choose.one_of<at::ScalarType>({at::kFloat, at::kDouble, at::kBFloat16, at::kHalf});
  // A norm of few numbers, which may lie close together, enlarges what rounding has changed in them.
  const int64_t least = made.dtype == at::kFloat || made.dtype == at::kDouble ? 3 : 16;
  const int64_t width = choose.one_of<int64_t>({1, 2, 3, 7, 8, 16});
  made.config.hidden_size =
      made.config.heads * std::max(width, (least + made.config.heads - 1) / made.config.heads);
  // A single GELU far from 0 has a gradient that is rounding alone in 16 bits.
  made.config.intermediate_size =
      least == 3 ? choose.one_of<int64_t>({-1, 1, 5, 16, 33, 70}) : choose.one_of<int64_t>({-1, 16, 33, 70});
  made.config.attn_dropout_ratio = choose.one_of<double>({-1, 0, 0.1, 0.5});
  made.config.hidden_dropout_ratio = choose.one_of<double>({-1, 0, 0.1, 0.5});
  made.config.layer_norm_eps = choose.one_of<double>({1e-12, 1e-5, 1e-3});
  made.config.seed = choose.one_of<int64_t>({-1, 0, 77});
  made.config.pre_layer_norm = choose.coin();
  made.config.normalize_invertible = choose.coin();
  made.config.gelu_checkpoint = choose.coin();
  made.config.attn_dropout_checkpoint = choose.coin();
  made.config.stochastic_mode = choose.coin();
  made.config.layer_id = static_cast<int64_t>(seed);
  made.config = made.config.checked();
  made.batch = choose.up_to(4);
  made.sequence = choose.one_of<int64_t>({1, 2, 5, 16, 17, 33});
  made.mask_kind = choose.one_of<int>({0, 1, 2, 3});
  made.strided = choose.coin();
  made.fp32_vectors = choose.coin() && made.dtype != at::kDouble;
  return made;
}

/// Weights of moderate size; norm weights are away from 0.
TransformerWeights make_weights(const LayerCase& made) {
  const int64_t hidden = made.config.hidden_size, inter = made.config.intermediate_size;
  const auto matrix = [&](int64_t out, int64_t in) {
    return (at::randn({out, in}) / std::sqrt(static_cast<double>(in))).to(made.dtype);
  };
  const auto vector = [&](int64_t size) {
    return (0.3 * at::randn({size})).to(made.fp32_vectors ? at::kFloat : made.dtype);
  };
  const auto norm = [&] {
    return (0.5 + at::rand({hidden})).to(made.fp32_vectors ? at::kFloat : made.dtype);
  };
  return {matrix(3 * hidden, hidden),
          vector(3 * hidden),
          matrix(hidden, hidden),
          vector(hidden),
          norm(),
          vector(hidden),
          matrix(inter, hidden),
          vector(inter),
          matrix(hidden, inter),
          vector(hidden),
          norm(),
          vector(hidden)};
}

at::Tensor make_mask(const LayerCase& made) {
  // Each row sees its first key: of scores near -10000 alone fp32 keeps no more than 1e-3.
  const auto drawn = [&](std::vector<int64_t> sizes) {
    const at::Tensor hides = at::rand(sizes) < 0.3;
    hides.select(-1, 0).fill_(false);
    return at::where(hides, -10000.0, at::randn(sizes).to(at::kDouble)).to(made.dtype);
  };
  const int64_t keys = made.sequence;
  if (made.mask_kind == 1) return drawn({made.batch, 1, 1, keys});
  if (made.mask_kind == 2) return drawn({1, 1, keys, keys});
  if (made.mask_kind == 3) return drawn({made.batch, made.config.heads, keys, keys});
  return {};
}

/// The factors that the layer draws after this moment; the generator stays where it is.
DropoutFactors next_factors(const LayerCase& made) {
  auto generator = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor state = generator.get_state();
  const auto& config = made.config;
  const auto factors = [&](double ratio, std::vector<int64_t> sizes) {
    if (ratio == 0) return at::Tensor();
    kernels::Philox philox = kernels::next_philox(at::kCPU);
    if (config.seed >= 0) philox.seed = static_cast<uint64_t>(config.seed);
    return kernels::dropout(at::ones(sizes, at::kDouble), ratio, philox);
  };
  const std::vector<int64_t> states = {made.batch, made.sequence, config.hidden_size};
  DropoutFactors drawn;
  drawn.probabilities =
      factors(config.attn_dropout_ratio, {made.batch, config.heads, made.sequence, made.sequence});
  drawn.attention_output = factors(config.hidden_dropout_ratio, states);
  drawn.layer_output = factors(config.hidden_dropout_ratio, states);
  generator.set_state(state);
  return drawn;
}

/// Expects that each element is near: |seen - expected| <= tolerance * (|expected| + the tensor's root mean
/// square).
void expect_near(const at::Tensor& seen, const at::Tensor& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(seen.sizes(), expected.sizes()) << what;
  const at::Tensor wide = seen.to(at::kDouble);
  const double size = expected.square().mean().sqrt().item<double>();
  const at::Tensor allowed = tolerance * (expected.abs() + size) + 1e-300;
  const double worst = ((wide - expected).abs() / allowed).max().item<double>();
  EXPECT_LE(worst, 1.0) << what << ": the tolerance is " << tolerance;
}

double tolerance_of(at::ScalarType dtype) {
  if (dtype == at::kDouble) return 1e-9;
  if (dtype == at::kFloat) return 2e-4;
  return dtype == at::kHalf ? 2e-2 : 1.5e-1;  // sums over rows cancel
}

std::vector<at::Tensor> leaves_of(const at::Tensor& x, const TransformerWeights& weights) {
  std::vector<at::Tensor> leaves = {x};
  for (const auto& weight : ops::kTransformerWeights) leaves.push_back(weights.*weight.member);
  return leaves;
}

TransformerWeights map_weights(TransformerWeights weights,
                               const std::function<at::Tensor(const at::Tensor&)>& map) {
  for (const auto& [name, member, rows, columns, start] : ops::kTransformerWeights)
    weights.*member = map(weights.*member);
  return weights;
}

void expect_case(uint64_t seed) {
  const LayerCase made = random_case(seed);
  torch::manual_seed(seed);
  const TransformerWeights weights =
      map_weights(make_weights(made), [](const at::Tensor& w) { return w.requires_grad_(); });
  const std::vector<int64_t> sizes = {made.batch, made.sequence, made.config.hidden_size};
  at::Tensor x = made.strided
                     ? at::randn({made.sequence, made.batch, sizes[2]}).to(made.dtype).transpose(0, 1)
                     : at::randn(sizes).to(made.dtype);
  x.requires_grad_();
  const at::Tensor mask = make_mask(made);
  const at::Tensor gradient = at::randn(sizes).to(made.dtype);
  const auto wide = [](const at::Tensor& t) { return t.detach().to(at::kDouble).requires_grad_(); };
  const TransformerWeights wide_weights = map_weights(weights, wide);
  const at::Tensor wide_x = wide(x);

  const DropoutFactors factors = next_factors(made);
  const at::Tensor output = transformer_layer(x, mask, weights, made.config, true);
  const at::Tensor expected = reference_layer(wide_x, mask.defined() ? mask.to(at::kDouble) : mask,
                                              wide_weights, made.config, factors);
  EXPECT_EQ(output.scalar_type(), made.dtype) << made.text();
  const double tolerance = tolerance_of(made.dtype);
  expect_near(output.detach(), expected.detach(), tolerance, "output of " + made.text());

  const auto seen = torch::autograd::grad({output}, leaves_of(x, weights), {gradient});
  const auto wanted =
      torch::autograd::grad({expected}, leaves_of(wide_x, wide_weights), {gradient.to(at::kDouble)});
  EXPECT_EQ(seen[0].scalar_type(), made.dtype);
  expect_near(seen[0], wanted[0], tolerance, "gradient of hidden_states of " + made.text());
  for (size_t i = 0; i < ops::kTransformerWeights.size(); ++i) {
    const auto& [name, member, rows, columns, start] = ops::kTransformerWeights[i];
    EXPECT_EQ(seen[i + 1].scalar_type(), (weights.*member).scalar_type()) << name;
    expect_near(seen[i + 1], wanted[i + 1], tolerance, message("gradient of ", name, " of ", made.text()));
  }
}

TEST(TransformerLayer, HasTheValuesAndGradientsOfPlainOperatorsAtRandomSizesAndOptions) {
  for (uint64_t seed = 0; seed < 360; ++seed) expect_case(seed);
}

LayerCase small_case(bool pre_layer_norm, double attn_ratio = 0.1, double hidden_ratio = 0.1) {
  LayerCase made{};
  made.config.heads = 2;
  made.config.hidden_size = 16;
  made.config.attn_dropout_ratio = attn_ratio;
  made.config.hidden_dropout_ratio = hidden_ratio;
  made.config.pre_layer_norm = pre_layer_norm;
  made.config = made.config.checked();
  made.batch = 2;
  made.sequence = 7;
  made.dtype = at::kFloat;
  made.mask_kind = 1;
  return made;
}

struct LayerRun {
  at::Tensor output;
  std::vector<at::Tensor> gradients;
};

LayerRun run_layer(const LayerCase& made) {
  torch::manual_seed(11);
  const TransformerWeights weights =
      map_weights(make_weights(made), [](const at::Tensor& w) { return w.requires_grad_(); });
  const at::Tensor x = at::randn({made.batch, made.sequence, made.config.hidden_size}).to(made.dtype);
  x.requires_grad_();
  const at::Tensor mask = make_mask(made);
  torch::manual_seed(12);
  LayerRun run;
  run.output = transformer_layer(x, mask, weights, made.config, true);
  run.gradients = torch::autograd::grad({run.output.square().sum()}, leaves_of(x, weights));
  return run;
}

void expect_equal_bits(const LayerRun& a, const LayerRun& b, const std::string& what) {
  EXPECT_TRUE(a.output.equal(b.output)) << what;
  for (size_t i = 0; i < a.gradients.size(); ++i)
    EXPECT_TRUE(a.gradients[i].equal(b.gradients[i])) << what << ", gradient " << i;
}

TEST(TransformerLayer, HasEqualBitsWithWhatBackwardComputesAgain) {
  for (const bool pre : {true, false}) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      LayerCase plain = small_case(pre);
      plain.dtype = dtype;
      const LayerRun expected = run_layer(plain);
      LayerCase gelu = plain, dropped = plain, stochastic = plain;
      gelu.config.gelu_checkpoint = true;
      dropped.config.attn_dropout_checkpoint = true;
      stochastic.config.stochastic_mode = true;
      expect_equal_bits(run_layer(gelu), expected, "gelu_checkpoint");
      expect_equal_bits(run_layer(dropped), expected, "attn_dropout_checkpoint");
      expect_equal_bits(run_layer(stochastic), expected, "stochastic_mode");
      LayerCase inverted = plain;
      inverted.config.normalize_invertible = true;
      EXPECT_TRUE(run_layer(inverted).output.equal(expected.output)) << "normalize_invertible";
    }
  }
}

TEST(TransformerLayer, DrawsAgainAtEachCallAndRepeatsUnderASeed) {
  const LayerRun first = run_layer(small_case(true));
  expect_equal_bits(run_layer(small_case(true)), first, "one seed");
  LayerCase other = small_case(true);
  other.config.seed = 3;
  const LayerRun seeded = run_layer(other);
  EXPECT_FALSE(seeded.output.equal(first.output));
  expect_equal_bits(run_layer(other), seeded, "config.seed");
  const LayerCase made = small_case(true);
  const TransformerWeights weights = make_weights(made);
  const at::Tensor x = at::randn({2, 7, 16});
  const auto output = [&](bool is_training) {
    return transformer_layer(x, {}, weights, made.config, is_training);
  };
  EXPECT_FALSE(output(true).equal(output(true)));
  EXPECT_TRUE(output(false).equal(output(false)));
  LayerCase evaluated = made;
  evaluated.config.training = false;
  EXPECT_TRUE(transformer_layer(x, {}, weights, evaluated.config, true).equal(output(false)));
}

TEST(TransformerLayer, ComputesOnlyTheGradientsThatAreWanted) {
  for (const bool pre : {true, false}) {
    const LayerCase made = small_case(pre, 0, 0);
    torch::manual_seed(5);
    const TransformerWeights weights = make_weights(made);
    at::Tensor x = at::randn({2, 7, 16}).requires_grad_();
    const auto all = map_weights(weights, [](const at::Tensor& w) { return w.detach().requires_grad_(); });
    const auto expected = torch::autograd::grad(
        {transformer_layer(x, {}, all, made.config, true).square().sum()}, leaves_of(x, all));
    for (size_t i = 0; i < expected.size(); ++i) {
      const at::Tensor states = i == 0 ? x : x.detach();
      TransformerWeights own = map_weights(weights, [](const at::Tensor& w) { return w.detach(); });
      at::Tensor leaf = x;
      if (i > 0) {
        leaf = (own.*ops::kTransformerWeights[i - 1].member).requires_grad_();
      }
      const at::Tensor loss = transformer_layer(states, {}, own, made.config, true).square().sum();
      EXPECT_TRUE(torch::autograd::grad({loss}, {leaf})[0].equal(expected[i])) << i;
    }
  }
}

TEST(TransformerLayer, TakesAMaskOfBooleans) {
  for (const double ratio : {0.0, 0.2}) {  // flash attention, and probabilities
    const LayerCase made = small_case(true, ratio, 0);
    const TransformerWeights weights = make_weights(made);
    const at::Tensor x = at::randn({2, 7, 16}), seen = at::rand({2, 1, 1, 7}) < 0.6;
    const auto output = [&](const at::Tensor& mask) {
      torch::manual_seed(3);
      return transformer_layer(x, mask, weights, made.config, true);
    };
    EXPECT_TRUE(
        at::allclose(output(seen), output(at::where(seen, 0.0, -10000.0).to(at::kFloat)), 1e-5, 1e-6));
    EXPECT_FALSE(at::allclose(output(seen), output({}), 1e-3, 1e-3));
    EXPECT_TRUE(output(at::zeros_like(seen)).isfinite().all().item<bool>());
  }
}

TEST(TransformerLayer, KeepsNothingWithoutGradients) {
  LayerCase made = small_case(true);
  const auto weights =
      map_weights(make_weights(made), [](const at::Tensor& w) { return w.requires_grad_(); });
  EXPECT_TRUE(transformer_layer(at::randn({1, 3, 16}), {}, weights, made.config, true).requires_grad());
  made.config.is_grad_enabled = false;
  EXPECT_FALSE(transformer_layer(at::randn({1, 3, 16}), {}, weights, made.config, true).requires_grad());
}

TEST(TransformerLayer, RefusesASecondDerivative) {
  const LayerCase made = small_case(true);
  const TransformerWeights weights = make_weights(made);
  const at::Tensor x = at::randn({1, 3, 16}).requires_grad_();
  const at::Tensor loss = transformer_layer(x, {}, weights, made.config, true).sum();
  EXPECT_ERROR(NotSupportedError, torch::autograd::grad({loss}, {x}, {}, std::nullopt, true),
               "has no second derivative", "create_graph");
}

TEST(TransformerLayer, RefusesToInvertANormOfWeightZero) {
  LayerCase made = small_case(true);
  made.config.normalize_invertible = true;
  TransformerWeights weights = make_weights(made);
  weights.attn_nw[3] = 0;
  const at::Tensor x = at::randn({1, 3, 16}).requires_grad_();
  const at::Tensor loss = transformer_layer(x, {}, weights, made.config, true).sum();
  EXPECT_ERROR(UsageError, torch::autograd::grad({loss}, {x}), "attn_nw has a 0", "normalize_invertible");
}

}  // namespace
}  // namespace deepspeed::testing
