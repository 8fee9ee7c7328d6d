// The example's Llama: its operators against plain ones, ZeRO-3 on two ranks against one rank, and its
// folders.
#include "llama.h"

#include <cmath>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/checkpoint/archive/safetensors.h"
#include "deepspeed/deepspeed.h"

#include "llama_run.h"
#include "model_folder.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace llama {
namespace {

using deepspeed::Json;
using deepspeed::testing::TemporaryFolder;

LlamaConfig small_config() {
  LlamaConfig config;
  config.vocab_size = 19;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 10;
  config.max_position_embeddings = 16;
  config.initializer_range = 0.3;
  return config;
}

at::Tensor some_tokens(int64_t batch, int64_t length) {
  return torch::arange(batch * length, at::kLong).mul(7).remainder(19).view({batch, length});
}

// Computes the model's logits with elementary operations, in float64.
at::Tensor reference_logits(Llama& model, const at::Tensor& tokens) {
  const LlamaConfig& config = model.config();
  const auto parameters = model.named_parameters();
  const auto weight = [&](const std::string& name) { return parameters[name + ".weight"].to(at::kDouble); };
  const auto norm = [&](const at::Tensor& x, const std::string& name) {
    return x / (x.square().mean(-1, true) + config.rms_norm_eps).sqrt() * weight(name);
  };
  const auto linear = [&](const at::Tensor& x, const std::string& name) {
    const auto y = torch::matmul(x, weight(name).t());
    const auto* bias = parameters.find(name + ".bias");
    return bias == nullptr ? y : y + bias->to(at::kDouble);
  };
  const int64_t batch = tokens.size(0), length = tokens.size(1), dim = config.head_dim;
  const auto by_heads = [&](const at::Tensor& y) { return y.view({batch, length, -1, dim}).transpose(1, 2); };
  const auto angle = torch::arange(length, at::kDouble).unsqueeze(1) *
                     torch::pow(config.rope.theta, -torch::arange(0, dim, 2, at::kDouble) / double(dim));
  const auto turn = [&](const at::Tensor& y) {
    const auto halves = y.chunk(2, -1);
    return torch::cat({halves[0] * angle.cos() - halves[1] * angle.sin(),
                       halves[1] * angle.cos() + halves[0] * angle.sin()},
                      -1);
  };
  const auto hidden_mask = torch::ones({length, length}, at::kBool).triu(1);
  auto x = weight("model.embed_tokens").index({tokens});
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const auto normed = norm(x, layer + "input_layernorm");
    const int64_t repeats = config.num_attention_heads / config.num_key_value_heads;
    const auto queries = turn(by_heads(linear(normed, layer + "self_attn.q_proj")));
    const auto keys =
        turn(by_heads(linear(normed, layer + "self_attn.k_proj"))).repeat_interleave(repeats, 1);
    const auto values = by_heads(linear(normed, layer + "self_attn.v_proj")).repeat_interleave(repeats, 1);
    const auto scores = torch::matmul(queries, keys.transpose(2, 3)) / std::sqrt(double(dim));
    const auto mixed = torch::matmul(torch::softmax(scores.masked_fill(hidden_mask, -INFINITY), -1), values);
    x = x + linear(mixed.transpose(1, 2).reshape({batch, length, -1}), layer + "self_attn.o_proj");
    const auto middle = norm(x, layer + "post_attention_layernorm");
    x = x +
        linear(torch::silu(linear(middle, layer + "mlp.gate_proj")) * linear(middle, layer + "mlp.up_proj"),
               layer + "mlp.down_proj");
  }
  const bool is_tied = config.tie_word_embeddings;
  return torch::matmul(norm(x, "model.norm"), weight(is_tied ? "model.embed_tokens" : "lm_head").t());
}

TEST(Llama, EqualsTheFunctionWrittenOut) {
  for (const bool other : {false, true}) {
    auto config = small_config();
    config.attention_bias = config.mlp_bias = config.tie_word_embeddings = other;
    if (other) config.num_key_value_heads = 4;
    torch::manual_seed(1);
    Llama model(config);
    {
      torch::NoGradGuard no_grad;  // away from the initial values, which hide a wrong bias or norm
      for (auto& parameter : model.parameters()) parameter.add_(torch::randn_like(parameter) * 0.1);
    }
    const auto tokens = some_tokens(3, 11);
    const auto expected = reference_logits(model, tokens);
    const auto logits = model.logits(tokens);
    EXPECT_LT((logits - expected).abs().max().item<double>(), 1e-5 * expected.abs().max().item<double>());
    const auto loss = torch::log_softmax(expected, -1).gather(2, tokens.unsqueeze(2)).mean().neg();
    EXPECT_NEAR(model.forward(tokens, tokens).item<double>(), loss.item<double>(), 1e-5);
    EXPECT_TRUE(torch::allclose(model.logits(tokens.narrow(1, 0, 4)), logits.narrow(1, 0, 4), 1e-4, 1e-5));
  }
}

TEST(Llama, LeavesTheRowOfThePadWithoutAGradient) {
  auto config = small_config();
  config.pad_token_id = 7;
  torch::manual_seed(1);
  Llama model(config);
  model.forward(some_tokens(2, 8), some_tokens(2, 8)).backward();
  const auto weight = model.named_parameters()["model.embed_tokens.weight"];
  EXPECT_TRUE(weight[7].eq(0).all().item<bool>());
  EXPECT_TRUE(weight.grad()[7].eq(0).all().item<bool>());
  EXPECT_FALSE(weight.grad()[0].eq(0).all().item<bool>());
}

TEST(Llama, RefusesALongerSequenceByItsShape) {
  Llama model(small_config());
  EXPECT_ERROR(deepspeed::UsageError, model.logits(some_tokens(1, 17)), "[1, 17]", "(batch, 1 to 16)");
}

Json config_of(int stage, int64_t micro_batch, bool bf16 = false) {
  return {{"train_micro_batch_size_per_gpu", micro_batch},
          {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}, {"eps", 1e-4}}}}},
          {"bf16", {{"enabled", bf16}}},
          {"zero_optimization", {{"stage", stage}, {"stage3_param_persistence_threshold", 50}}}};
}

/// Fine-tunes the model of a folder on some rows a rank, saves it, and returns the mean losses, one a line.
std::string fine_tune(deepspeed::comm::World& world, int stage, const std::filesystem::path& from,
                      const std::filesystem::path& to) {
  constexpr int64_t kRows = 4;
  const int64_t share = kRows / world.size();
  const auto config = read_llama_config(from);
  deepspeed::manual_seed(5);
  std::shared_ptr<Llama> model;
  {
    const deepspeed::zero::Init init(
        {.config_dict_or_path = config_of(stage, share), .enabled = stage == 3, .world = world});
    model = std::make_shared<Llama>(config);
  }
  auto engine = deepspeed::initialize(model, {.config = config_of(stage, share), .world = world}).engine;
  load_llama(*engine, config, from);
  std::string losses;
  for (int64_t step = 0; step < 12; ++step) {
    const auto tokens =
        (some_tokens(kRows, 9) + step % 3).remainder(19).narrow(0, world.rank() * share, share);
    const auto loss = engine->forward(tokens.narrow(1, 0, 8), tokens.narrow(1, 1, 8));
    losses +=
        std::to_string(world.group().all_reduce_scalar(loss.template item<double>()) / double(world.size())) +
        "\n";
    engine->backward(loss);
    engine->step();
  }
  save_llama(*engine, config, to);
  return losses;
}

std::vector<double> numbers_in(const std::string& text) {
  std::istringstream stream(text);
  std::vector<double> numbers;
  for (double number = 0; stream >> number;) numbers.push_back(number);
  return numbers;
}

TEST(Llama, FineTunesAtStage3OnTwoRanksAsAtStage0OnOne) {
  const TemporaryFolder folder;
  torch::manual_seed(1);
  Llama model(small_config());
  deepspeed::NamedTensors tensors;
  for (const auto& item : model.named_parameters()) tensors.push_back({item.key(), item.value().detach()});
  examples::write_model_folder(folder / "given", to_json(model.config()), tensors);
  std::map<int, std::vector<double>> losses;
  for (const int stage : {0, 3}) {
    losses[stage] = numbers_in(
        deepspeed::testing::run_ranks_collect(stage == 3 ? 2 : 1, [&](deepspeed::comm::World& world) {
          return fine_tune(world, stage, folder / "given", folder / std::to_string(stage));
        })[0]);
  }
  ASSERT_EQ(losses[0].size(), 12U);
  EXPECT_LT(losses[0].back(), 0.7 * losses[0].front());
  for (size_t step = 0; step < 12; ++step) EXPECT_NEAR(losses[3][step], losses[0][step], 1e-5) << step;

  auto of_stage_0 = std::make_shared<Llama>(small_config());
  auto of_stage_3 = std::make_shared<Llama>(small_config());
  load_llama(of_stage_0, folder / "0");
  load_llama(of_stage_3, folder / "3");
  for (const auto& item : of_stage_0->named_parameters()) {
    EXPECT_TRUE(torch::allclose(of_stage_3->named_parameters()[item.key()], item.value(), 1e-3, 1e-4))
        << item.key();
    EXPECT_FALSE(item.value().equal(model.named_parameters()[item.key()])) << item.key();
  }
}

TEST(Llama, SavesAFolderInTheDtypeOfTheEngine) {
  const TemporaryFolder folder;
  deepspeed::testing::run_ranks(1, [&](deepspeed::comm::World& world) {
    auto engine = deepspeed::initialize(std::make_shared<Llama>(small_config()),
                                        {.config = config_of(1, 4, true), .world = world})
                      .engine;
    save_llama(*engine, small_config(), folder.path());
  });
  EXPECT_EQ(deepspeed::read_json_file(folder / "config.json")["dtype"], "bfloat16");
  for (const auto& [name, tensor] : deepspeed::checkpoint::read_safetensors(folder / "model.safetensors"))
    EXPECT_EQ(tensor.scalar_type(), at::kBFloat16) << name;
}

TEST(Llama, RefusesOptionsThatMissEachOther) {
  Options options;
  EXPECT_ERROR(deepspeed::UsageError, run(options), "--deepspeed_config FILE");
  options.config.deepspeed_config = "ds_config.json";
  EXPECT_ERROR(deepspeed::UsageError, run(options), "--model FOLDER, or --new_model");
  options.folders.inputs = "inputs.safetensors";
  EXPECT_ERROR(deepspeed::UsageError, run(options), "--inputs and --logits need each other");
  options.folders.logits = "logits.safetensors";
  EXPECT_ERROR(deepspeed::UsageError, run(options), "--inputs needs --model");
}

TEST(TrainingTokens, AreBytesOfATextOrTheTensorOfAFile) {
  const TemporaryFolder folder;
  const auto text = folder.write("text.txt", "ab\xff");
  EXPECT_TRUE(examples::read_training_tokens(text, 256).equal(torch::tensor({97, 98, 255}, at::kLong)));
  EXPECT_ERROR(deepspeed::UsageError, examples::read_training_tokens(text, 200), "text.txt", "token 255",
               "vocab_size, 200");
  const auto tokens = torch::tensor({{5, 300, 2}}, at::kLong);
  deepspeed::checkpoint::write_safetensors(folder / "tokens.safetensors", {{"input_ids", tokens}});
  EXPECT_TRUE(examples::read_training_tokens(folder / "tokens.safetensors", 301).equal(tokens.flatten()));
  deepspeed::checkpoint::write_safetensors(folder / "other.safetensors", {{"labels", tokens}});
  EXPECT_ERROR(deepspeed::UsageError, examples::read_training_tokens(folder / "other.safetensors", 301),
               "other.safetensors has the tensor labels");
}

}  // namespace
}  // namespace llama
