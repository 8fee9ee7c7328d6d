#include "gpt.h"

#include <cmath>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

namespace gpt2 {
namespace {

GptConfig small_config() { return {.vocabulary = 11, .context = 8, .layers = 2, .heads = 2, .width = 16}; }

at::Tensor some_tokens(int64_t batch, int64_t length) {
  return torch::arange(batch * length, at::kLong).remainder(11).view({batch, length});
}

TEST(Gpt, NamesParametersLikeHuggingFaceAndTiesTheHead) {
  GPT model(small_config());
  std::vector<std::string> names;
  for (const auto& item : model.named_parameters()) names.push_back(item.key());
  std::vector<std::string> expected = {"wte.weight", "wpe.weight"};
  for (const std::string block : {"h.0.", "h.1."}) {
    for (const char* part : {"ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"}) {
      expected.push_back(block + part + ".weight");
      expected.push_back(block + part + ".bias");
    }
  }
  expected.insert(expected.end(), {"ln_f.weight", "ln_f.bias"});
  std::sort(names.begin(), names.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(names, expected);
}

TEST(Gpt, InitialisesAsGpt2Does) {
  torch::manual_seed(1);
  GPT model({.vocabulary = 300, .context = 64, .layers = 2, .heads = 2, .width = 64});
  const auto parameters = model.named_parameters();
  const auto deviation = [&](const char* name) { return parameters[name].std().item<double>(); };
  EXPECT_NEAR(deviation("wte.weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation("h.0.attn.c_attn.weight"), 0.02, 0.001);
  EXPECT_NEAR(deviation("h.0.attn.c_proj.weight"), 0.01, 0.001);  // 0.02 / sqrt(2 * 2 layers)
  EXPECT_NEAR(deviation("h.1.mlp.c_proj.weight"), 0.01, 0.001);
  EXPECT_TRUE(parameters["h.1.mlp.c_fc.bias"].eq(0).all().item<bool>());
  EXPECT_TRUE(parameters["ln_f.weight"].eq(1).all().item<bool>());
}

TEST(Gpt, StartsNearTheLossOfAUniformGuess) {
  torch::manual_seed(2);
  GPT model(small_config());
  const auto tokens = some_tokens(4, 8);
  // Not the tokens themselves: the tied head favours those from the start.
  EXPECT_NEAR(model.forward(tokens, (tokens + 3).remainder(11)).item<double>(), std::log(11.0), 0.1);
}

TEST(Gpt, LogitsOfAPositionDoNotSeeLaterTokens) {
  torch::manual_seed(3);
  GPT model(small_config());
  const auto tokens = some_tokens(2, 8);
  auto changed = tokens.clone();
  changed.select(1, 5).add_(1).remainder_(11);
  const auto before = model.logits(tokens), after = model.logits(changed);
  EXPECT_TRUE(torch::allclose(before.narrow(1, 0, 5), after.narrow(1, 0, 5), 1e-5, 1e-6));
  EXPECT_FALSE(torch::allclose(before.narrow(1, 5, 3), after.narrow(1, 5, 3), 1e-5, 1e-6));
}

TEST(Gpt, ReadsTokenByTokenWithACacheAsAllAtOnce) {
  torch::manual_seed(4);
  GPT model(small_config());
  const auto tokens = some_tokens(2, 8);
  const auto whole = model.logits(tokens);
  KeyValueCache cache;
  std::vector<at::Tensor> parts;
  for (const auto& [begin, length] : std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {3, 1}, {4, 1}, {5, 3}})
    parts.push_back(model.logits(tokens.narrow(1, begin, length), &cache));
  EXPECT_TRUE(torch::allclose(torch::cat(parts, 1), whole, 1e-5, 1e-6));
  EXPECT_EQ(cache.length, 8);
  EXPECT_ERROR(deepspeed::UsageError, model.logits(tokens.narrow(1, 0, 1), &cache),
               "shape [2, 1] behind 8 in the cache");
  cache.clear();  // what it holds is of no account
  EXPECT_TRUE(
      torch::allclose(model.logits(tokens.narrow(1, 0, 5), &cache), whole.narrow(1, 0, 5), 1e-5, 1e-6));
}

// Computes the model's logits with elementary operations.
at::Tensor reference_logits(GPT& model, const at::Tensor& tokens) {
  const auto p = model.named_parameters();
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    const auto centred = x - x.mean(-1, true);
    const auto scaled = centred / (centred.square().mean(-1, true) + 1e-5).sqrt();
    return scaled * p[name + ".weight"] + p[name + ".bias"];
  };
  const auto linear = [&](const at::Tensor& x, const std::string& name) {
    return torch::matmul(x, p[name + ".weight"].t()) + p[name + ".bias"];
  };
  const int64_t length = tokens.size(1), heads = model.config().heads, width = model.config().width;
  auto x = p["wte.weight"].index({tokens}) + p["wpe.weight"].narrow(0, 0, length);
  for (int64_t i = 0; i < model.config().layers; ++i) {
    const std::string block = "h." + std::to_string(i) + ".";
    const auto parts = linear(norm(x, block + "ln_1"), block + "attn.c_attn").split(width, -1);
    const auto split = [&](const at::Tensor& y) {
      return y.view({-1, length, heads, width / heads}).transpose(1, 2);
    };
    auto scores =
        torch::matmul(split(parts[0]), split(parts[1]).transpose(2, 3)) / std::sqrt(double(width / heads));
    scores = scores.masked_fill(torch::ones({length, length}, at::kBool).triu(1), -INFINITY);
    const auto mixed = torch::matmul(torch::softmax(scores, -1), split(parts[2])).transpose(1, 2);
    x = x + linear(mixed.reshape({-1, length, width}), block + "attn.c_proj");
    const auto wide = linear(norm(x, block + "ln_2"), block + "mlp.c_fc");
    const auto activated =
        0.5 * wide * (1 + torch::tanh(std::sqrt(2 / M_PI) * (wide + 0.044715 * wide.pow(3))));
    x = x + linear(activated, block + "mlp.c_proj");
  }
  return torch::matmul(norm(x, "ln_f"), p["wte.weight"].t());
}

TEST(Gpt, EqualsTheFunctionWrittenOut) {
  torch::manual_seed(4);
  GPT model(small_config());
  {
    torch::NoGradGuard no_grad;  // away from the initial values, which hide a wrong bias or norm
    for (auto& parameter : model.parameters()) parameter.add_(torch::randn_like(parameter) * 0.2);
  }
  const auto tokens = some_tokens(3, 7);
  const auto logits = model.logits(tokens);
  EXPECT_TRUE(torch::allclose(logits, reference_logits(model, tokens), 1e-4, 1e-4));
  const auto log_probability = torch::log_softmax(logits, -1).gather(2, tokens.unsqueeze(2));
  EXPECT_NEAR(model.forward(tokens, tokens).item<double>(), -log_probability.mean().item<double>(), 1e-5);
}

TEST(Gpt, DropsOutOnlyInTraining) {
  torch::manual_seed(5);
  auto config = small_config();
  config.dropout = 0.5;
  GPT model(config);
  const auto tokens = some_tokens(2, 8);
  EXPECT_FALSE(model.logits(tokens).equal(model.logits(tokens)));
  model.eval();
  EXPECT_TRUE(model.logits(tokens).equal(model.logits(tokens)));
}

TEST(Gpt, RejectsWrongSizesByName) {
  const auto message_of = [](GptConfig config) {
    return deepspeed::testing::error_of<deepspeed::UsageError>([&] { validate(config); });
  };
  auto config = small_config();
  config.heads = 3;
  EXPECT_EQ(message_of(config), "[gpt2.gpt] width is 16, expected a multiple of heads (3)");
  config = small_config();
  config.layers = 0;
  EXPECT_EQ(message_of(config), "[gpt2.gpt] layers is 0, expected at least 1");
  config = small_config();
  config.dropout = 1.0;
  EXPECT_NE(message_of(config).find("dropout is 1"), std::string::npos);
  GPT model(small_config());
  EXPECT_ERROR(deepspeed::UsageError, model.logits(some_tokens(1, 9)),
               "shape [1, 9] behind 0 in the cache, expected (batch, 1 to 8)");
}

}  // namespace
}  // namespace gpt2
