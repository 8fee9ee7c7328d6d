// The example's BERT: its task, its training, and its weights in Hugging Face's form.
#include "bert.h"

#include <algorithm>
#include <fstream>

#include <torch/torch.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/safetensors.h"
#include "deepspeed/checkpoint/weights/weight_source.h"
#include "deepspeed/deepspeed.h"

#include "bert_run.h"
#include "bert_weights.h"
#include "masking.h"
#include "model_folder.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace bert {
namespace {

using deepspeed::NamedTensors;
using deepspeed::testing::TemporaryFolder;

BertConfig small_config(int64_t vocabulary = 40) {
  BertConfig config;
  config.vocab_size = vocabulary;
  config.max_position_embeddings = 32;
  config.layer.hidden_size = 24;
  config.layer.intermediate_size = 40;
  config.layer.heads = 3;
  config.layer.num_hidden_layers = 2;
  config.layer.hidden_dropout_ratio = config.layer.attn_dropout_ratio = 0.1;
  config.layer.initializer_range = 0.2;
  config.layer.pre_layer_norm = config.layer.adjust_init_range = false;
  return config;
}

NamedTensors tensors_of(Bert& model) {
  NamedTensors tensors;
  for (const auto& item : model.named_parameters()) tensors.push_back({item.key(), item.value().detach()});
  return tensors;
}

TEST(Masking, ChoosesSharesOfTheTokensAndRepeatsThem) {
  const auto tokens = torch::arange(40000, at::kLong).remainder(256).view({100, 400});
  const auto masked = mask_tokens(tokens, 256, 3);
  const auto chosen = masked.targets.ne(kIgnored);
  const double num_chosen = chosen.sum().item<double>();
  const auto share = [&](const at::Tensor& which) {
    return chosen.logical_and(which).sum().item<double>() / num_chosen;
  };
  EXPECT_NEAR(num_chosen / 40000, 0.15, 0.01);
  EXPECT_NEAR(share(masked.tokens.eq(256)), 0.8, 0.02);
  EXPECT_NEAR(share(masked.tokens.ne(256).logical_and(masked.tokens.ne(tokens))), 0.1, 0.02);
  EXPECT_TRUE(masked.tokens.where(chosen.logical_not(), tokens).equal(tokens));
  EXPECT_TRUE(masked.targets.where(chosen, tokens).equal(tokens));
  EXPECT_TRUE(mask_tokens(tokens, 256, 3).tokens.equal(masked.tokens));
  EXPECT_FALSE(mask_tokens(tokens, 256, 4).tokens.equal(masked.tokens));
  EXPECT_EQ(
      mask_tokens(tokens.narrow(0, 0, 1).narrow(1, 0, 1), 256, 1).targets.ne(kIgnored).sum().item<int>(), 1);
}

TEST(Bert, PredictsOnlyTheChosenTokens) {
  torch::manual_seed(1);
  Bert model(small_config());
  model.eval();
  const auto tokens = torch::randint(40, {3, 11}, at::kLong);
  auto targets = torch::full({3, 11}, kIgnored, at::kLong);
  targets[0][4] = 5;
  targets[2][10] = 7;
  const auto expected =
      torch::nn::functional::cross_entropy(model.logits(tokens).flatten(0, 1), targets.flatten());
  EXPECT_NEAR(model.forward(tokens, targets).item<double>(), expected.item<double>(), 1e-5);
}

TEST(Bert, SeesAllTokensButThoseOfTheMask) {
  torch::manual_seed(1);
  Bert model(small_config());
  model.eval();
  const auto tokens = torch::randint(40, {2, 11}, at::kLong);
  auto changed = tokens.clone();
  changed.select(1, 9).add_(1).remainder_(40);
  auto mask = torch::ones({2, 11}, at::kLong);
  mask.narrow(1, 8, 3).zero_();
  const auto first = [&](const at::Tensor& given, const BertInputs& inputs) {
    return model.logits(given, inputs).narrow(1, 0, 8);
  };
  EXPECT_FALSE(torch::allclose(first(tokens, {}), first(changed, {})));
  EXPECT_TRUE(
      torch::allclose(first(tokens, {.attention_mask = mask}), first(changed, {.attention_mask = mask})));
  EXPECT_FALSE(
      torch::allclose(first(tokens, {}), first(tokens, {.token_type_ids = torch::ones({2, 11}, at::kLong)})));
  EXPECT_ERROR(deepspeed::UsageError, model.logits(tokens, {.attention_mask = mask.t()}), "attention_mask",
               "[11, 2]");
  EXPECT_ERROR(deepspeed::UsageError, model.logits(torch::zeros({1, 33}, at::kLong)), "[1, 33]", "1 to 32");
}

TEST(BertWeights, HaveTheNamesOfHuggingFaceAndComeBack) {
  torch::manual_seed(1);
  Bert model(small_config()), other(small_config());
  const auto tensors = with_hugging_face_names(tensors_of(model));
  EXPECT_EQ(tensors.size(), 5 + 2 * 16 + 5U);
  const auto named = deepspeed::by_name(tensors);
  EXPECT_TRUE(named.at("bert.encoder.layer.1.attention.self.value.weight")
                  .equal(model.named_parameters()["bert.encoder.layer.1.attn_qkvw"].narrow(0, 48, 24)));
  EXPECT_TRUE(named.at("bert.encoder.layer.0.attention.output.LayerNorm.bias")
                  .equal(model.named_parameters()["bert.encoder.layer.0.attn_nb"]));
  const TemporaryFolder folder;
  examples::write_model_folder(folder.path(), to_json(model.config()), tensors);
  EXPECT_TRUE(load_bert(other, folder.path()).empty());
  for (const auto& item : model.named_parameters())
    EXPECT_TRUE(item.value().equal(other.named_parameters()[item.key()])) << item.key();
}

TEST(BertWeights, AreReadFromOlderFilesAndOtherHeads) {
  torch::manual_seed(1);
  Bert model(small_config()), other(small_config());
  NamedTensors tensors = with_hugging_face_names(tensors_of(model));
  for (auto& [name, tensor] : tensors) {
    if (name.ends_with("LayerNorm.weight")) name.replace(name.size() - 6, 6, "gamma");
    if (name.ends_with("LayerNorm.bias")) name.replace(name.size() - 4, 4, "beta");
  }
  tensors.push_back({"bert.pooler.dense.weight", at::zeros({24, 24})});
  tensors.push_back({"cls.predictions.decoder.weight", tensors.front().tensor});
  const TemporaryFolder folder;
  examples::write_model_folder(folder.path(), to_json(model.config()), tensors);
  EXPECT_EQ(load_bert(other, folder.path()),
            (std::vector<std::string>{"bert.pooler.dense.weight", "cls.predictions.decoder.weight"}));
  EXPECT_TRUE(other.named_parameters()["bert.encoder.layer.0.norm_w"].equal(
      model.named_parameters()["bert.encoder.layer.0.norm_w"]));
}

// A decoder that is not the embedding has a bias under two names, of which Transformers takes the decoder's.
TEST(BertWeights, ComeBackWithTheBiasOfASeparateDecoder) {
  torch::manual_seed(1);
  BertConfig config = small_config();
  config.tie_word_embeddings = false;
  Bert model(config), other(config), third(config);
  const torch::NoGradGuard no_grad;
  model.named_parameters()["cls.predictions.bias"].normal_();
  NamedTensors tensors = with_hugging_face_names(tensors_of(model));
  repeat_bias_of_decoder(tensors);
  EXPECT_EQ(tensors.size(), 5 + 2 * 16 + 5 + 2U);
  const auto named = deepspeed::by_name(tensors);
  const auto decoder = named.at("cls.predictions.decoder.weight");
  EXPECT_FALSE(decoder.equal(named.at("bert.embeddings.word_embeddings.weight")));
  EXPECT_TRUE(named.at("cls.predictions.decoder.bias").equal(named.at("cls.predictions.bias")));
  const TemporaryFolder folder;
  examples::write_model_folder(folder.path(), to_json(config), tensors);
  EXPECT_FALSE(read_bert_config(folder.path()).tie_word_embeddings);
  EXPECT_EQ(load_bert(other, folder.path()), std::vector<std::string>{"cls.predictions.bias"});
  for (const auto& item : model.named_parameters())
    EXPECT_TRUE(item.value().equal(other.named_parameters()[item.key()])) << item.key();

  for (auto& [name, tensor] : tensors) {
    if (name == "cls.predictions.bias") tensor = at::full({40}, 7.0F);
  }
  const TemporaryFolder of_transformers;
  examples::write_model_folder(of_transformers.path(), to_json(config), tensors);
  load_bert(third, of_transformers.path());
  EXPECT_TRUE(
      third.named_parameters()["cls.predictions.bias"].equal(named.at("cls.predictions.decoder.bias")));
}

TEST(BertWeights, AreListedAndChangeNothingIfTheyDoNotFit) {
  torch::manual_seed(1);
  Bert model(small_config()), other(small_config());
  NamedTensors tensors = with_hugging_face_names(tensors_of(model));
  std::erase_if(tensors, [](const auto& entry) { return entry.name == "cls.predictions.bias"; });
  for (auto& [name, tensor] : tensors) {
    if (name == "bert.encoder.layer.0.attention.self.key.bias") tensor = at::zeros({5});
  }
  tensors.push_back({"bert.extra", at::zeros({1})});
  const TemporaryFolder folder;
  examples::write_model_folder(folder.path(), to_json(model.config()), tensors);
  const auto before = other.named_parameters()["bert.embeddings.word_embeddings.weight"].clone();
  EXPECT_ERROR(deepspeed::CheckpointError, load_bert(other, folder.path()), "cls.predictions.bias is missing",
               "attention.self.key.bias has the shape [5], expected [24]", "bert.extra is unknown");
  EXPECT_TRUE(before.equal(other.named_parameters()["bert.embeddings.word_embeddings.weight"]));
}

struct BertRun : testing::Test {
  TemporaryFolder folder;

  Options options(int stage) {
    folder.write("config.json", to_json(small_config(257)).dump());
    folder.write("ds_config.json",
                 deepspeed::Json{{"train_micro_batch_size_per_gpu", 16},
                                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.02}}}}},
                                 {"zero_optimization", {{"stage", stage}}}}
                     .dump());
    std::string text;
    for (int i = 0; i < 60; ++i) text += "to be or not to be, that is the question\n";
    Options options;
    options.config.deepspeed_config = folder / "ds_config.json";
    options.folders.new_model = folder / "config.json";
    options.folders.output = folder / "trained";
    options.data = folder.write("text.txt", text);
    options.context = 24;
    options.steps = 60;
    options.loss_log = folder / "losses.txt";
    return options;
  }

  void train(const Options& given, int ranks) {
    const auto outcomes = deepspeed::testing::fork_ranks(ranks, [&](int) {
      run(given);
      return std::string();
    });
    for (const auto& outcome : outcomes)
      EXPECT_TRUE(outcome.ok()) << testing::PrintToString(outcome.failures);
  }

  std::vector<double> losses() {
    std::ifstream log(folder / "losses.txt");
    std::vector<double> losses;
    int64_t step = 0;
    for (double loss = 0; log >> step >> loss;) losses.push_back(loss);
    return losses;
  }
};

TEST_F(BertRun, LowersItsLossEquallyAtEveryStageOnTwoRanks) {
  std::vector<double> of_stage_0;
  for (const int stage : {0, 2, 3}) {
    train(options(stage), 2);
    const auto found = losses();
    ASSERT_EQ(found.size(), 60U);
    EXPECT_LT(found.back(), 0.6 * found.front());
    if (stage == 0) of_stage_0 = found;
    for (size_t step = 0; step < found.size(); ++step)
      EXPECT_NEAR(found[step], of_stage_0[step], 1e-4 * of_stage_0[step]) << "stage " << stage << " " << step;
    Bert trained(read_bert_config(folder / "trained"));
    EXPECT_TRUE(load_bert(trained, folder / "trained").empty());
  }
}

TEST_F(BertRun, WritesASeparateDecoderThatTrainingResumesFrom) {
  BertConfig config = small_config(257);
  config.tie_word_embeddings = false;
  for (const int stage : {0, 3}) {
    Options first = options(stage);
    folder.write("config.json", to_json(config).dump());
    first.steps = 20;
    train(first, 2);
    Bert trained(read_bert_config(folder / "trained"));
    EXPECT_FALSE(trained.config().tie_word_embeddings);
    load_bert(trained, folder / "trained");
    const auto names = deepspeed::checkpoint::open_weights(folder / "trained")->weights();
    EXPECT_EQ(std::ranges::count(names, "cls.predictions.decoder.bias", &deepspeed::NamedTensor::name), 1);
    const auto parameters = trained.named_parameters();
    EXPECT_GT(parameters["cls.predictions.bias"].abs().max().item<double>(), 0);
    const double before = losses().back();

    Options second = options(stage);
    second.folders.new_model.clear();
    second.folders.model = folder / "trained";
    second.folders.output = folder / "trained more";
    second.steps = 1;
    train(second, 2);
    ASSERT_EQ(losses().size(), 1U);
    EXPECT_NEAR(losses().front(), before, 0.5) << "stage " << stage;
    Bert more(read_bert_config(folder / "trained more"));
    load_bert(more, folder / "trained more");
    EXPECT_TRUE(torch::allclose(more.named_parameters()["cls.predictions.decoder.weight"],
                                parameters["cls.predictions.decoder.weight"], 0, 0.05));
  }
}

TEST_F(BertRun, RefusesAModelWithoutAMask) {
  const auto given = options(0);
  folder.write("config.json", to_json(small_config(256)).dump());
  const auto outcomes = deepspeed::testing::fork_ranks(1, [&](int) {
    EXPECT_ERROR(deepspeed::UsageError, run(given), "vocab_size is 256", "expected at least 257");
    return std::string();
  });
  EXPECT_TRUE(outcomes[0].ok()) << testing::PrintToString(outcomes[0].failures);
}

}  // namespace
}  // namespace bert
