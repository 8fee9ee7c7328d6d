// The layer's config, its parameters, what it keeps for backward, and what it refuses.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/Functions.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <gtest/gtest.h>

#include "deepspeed/autograd/saved_tensors.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/ops.h"
#include "deepspeed/ops/transformer/layer_function.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

DeepSpeedTransformerConfig small_config() {
  return {.hidden_size = 12,
          .intermediate_size = 20,
          .heads = 3,
          .attn_dropout_ratio = 0.1,
          .hidden_dropout_ratio = 0.1,
          .num_hidden_layers = 2,
          .initializer_range = 0.02};
}

TEST(TransformerConfig, ReadsAllKeysAndWritesThem) {
  const Json given = {{"batch_size", 8},
                      {"hidden_size", 64},
                      {"intermediate_size", 128},
                      {"heads", 4},
                      {"attn_dropout_ratio", 0.1},
                      {"hidden_dropout_ratio", 0.2},
                      {"num_hidden_layers", 24},
                      {"initializer_range", 0.02},
                      {"layer_norm_eps", 1e-6},
                      {"local_rank", 1},
                      {"seed", 12},
                      {"fp16", true},
                      {"pre_layer_norm", false},
                      {"normalize_invertible", true},
                      {"gelu_checkpoint", true},
                      {"adjust_init_range", false},
                      {"attn_dropout_checkpoint", true},
                      {"stochastic_mode", true},
                      {"return_tuple", true},
                      {"training", false},
                      {"huggingface", true},
                      {"layer_id", 3},
                      {"test_gemm", true},
                      {"is_grad_enabled", false}};
  EXPECT_EQ(DeepSpeedTransformerConfig::from_dict(given).to_dict(), given);
  const Json defaults = DeepSpeedTransformerConfig().to_dict();
  EXPECT_EQ(defaults.size(), given.size());
  for (const auto& [key, value] : given.items()) EXPECT_NE(defaults.at(key), value) << key;
}

TEST(TransformerConfig, ReadsFilesInUtf8AndUtf16) {
  const TemporaryFolder folder;
  const std::string text = R"({"hidden_size": 48, "heads": 6})";
  std::string little = "\xff\xfe", big = "\xfe\xff", unmarked;
  for (const char c : text) {
    little += {c, '\0'};
    big += {'\0', c};
    unmarked += {c, '\0'};
  }
  for (const std::string& bytes : {text, little, big, unmarked}) {
    const auto path = folder.path() / "layer.json";
    std::ofstream(path, std::ios::binary) << bytes;
    const auto config = DeepSpeedTransformerConfig::from_json_file(path);
    EXPECT_EQ(config.hidden_size, 48);
    EXPECT_EQ(config.heads, 6);
  }
  const auto path = folder.path() / "torn.json";
  std::ofstream(path, std::ios::binary) << little.substr(0, 20);
  EXPECT_ERROR(ConfigError, DeepSpeedTransformerConfig::from_json_file(path), "torn.json");
  EXPECT_ERROR(IoError, DeepSpeedTransformerConfig::from_json_file(folder.path() / "none.json"), "none.json");
}

TEST(TransformerConfig, ReplacesMinusOneByWhatItStandsFor) {
  const auto config = DeepSpeedTransformerConfig{.hidden_size = 8, .heads = 2, .huggingface = true}.checked();
  EXPECT_EQ(config.intermediate_size, 32);
  EXPECT_EQ(config.attn_dropout_ratio, 0);
  EXPECT_EQ(config.hidden_dropout_ratio, 0);
  EXPECT_TRUE(config.return_tuple);
}

TEST(TransformerConfig, NamesTheKeyThatIsWrong) {
  using Config = DeepSpeedTransformerConfig;
  EXPECT_ERROR(ConfigError, Config::from_dict({{"hiden_size", 8}}), "hiden_size",
               "did you mean 'hidden_size'");
  EXPECT_ERROR(ConfigError, Config::from_dict({{"heads", 1.5}}),
               "heads: got 1.5, expected a whole number of at least 1");
  EXPECT_ERROR(ConfigError, Config::from_dict({{"seed", "one"}}),
               "seed: got \"one\", expected a whole number of at least -1");
  EXPECT_ERROR(ConfigError, Config::from_dict({{"fp16", 2}}), "fp16: got 2, expected true or false");
  EXPECT_ERROR(ConfigError, Config::from_dict({{"initializer_range", "wide"}}),
               "initializer_range: got \"wide\", expected a number");
  EXPECT_ERROR(ConfigError, Config::from_dict({{"hidden_dropout_ratio", 1.5}}),
               "hidden_dropout_ratio: got 1.5, expected a number, from 0 to 1, or -1");
  EXPECT_EQ(Config::from_dict({{"layer_id", nullptr}, {"seed", "5"}}).seed, 5);
  EXPECT_ERROR(ConfigError, Config::from_dict(Json::array()), "expected a JSON object");
  const auto changed = [](auto change) {
    Config config = small_config();
    change(config);
    return config.checked();
  };
  EXPECT_ERROR(ConfigError, changed([](Config& c) { c.hidden_size = -1; }), "hidden_size: got -1");
  EXPECT_ERROR(ConfigError, changed([](Config& c) { c.heads = 0; }), "heads: got 0");
  EXPECT_ERROR(ConfigError, changed([](Config& c) { c.heads = -2; }), "heads: got -2");
  EXPECT_ERROR(ConfigError, changed([](Config& c) { c.heads = 5; }), "hidden_size: got 12", "heads, 5");
  EXPECT_ERROR(ConfigError, changed([](Config& c) { c.intermediate_size = 0; }), "intermediate_size: got 0");
  EXPECT_ERROR(ConfigError, changed([](Config& c) { c.batch_size = 0; }), "batch_size: got 0");
  EXPECT_ERROR(ConfigError, changed([](Config& c) { c.attn_dropout_ratio = 1.5; }), "attn_dropout_ratio");
  EXPECT_ERROR(ConfigError, changed([](Config& c) { c.hidden_dropout_ratio = NAN; }), "hidden_dropout_ratio");
  EXPECT_ERROR(ConfigError, changed([](Config& c) { c.layer_norm_eps = -1; }), "layer_norm_eps");
  EXPECT_ERROR(ConfigError, changed([](Config& c) { c.local_rank = -2; }), "local_rank");
  EXPECT_ERROR(ConfigError, changed([](Config& c) { c.seed = -2; }), "seed");
  EXPECT_ERROR(NotSupportedError, changed([](Config& c) { c.test_gemm = true; }), "test_gemm");
}

TEST(TransformerModule, HasDeepSpeedsParameters) {
  DeepSpeedTransformerLayer layer(small_config());
  const std::vector<std::pair<std::string, std::vector<int64_t>>> expected = {
      {"attn_qkvw", {36, 12}}, {"attn_qkvb", {36}}, {"attn_ow", {12, 12}}, {"attn_ob", {12}},
      {"attn_nw", {12}},       {"attn_nb", {12}},   {"inter_w", {20, 12}}, {"inter_b", {20}},
      {"output_w", {12, 20}},  {"output_b", {12}},  {"norm_w", {12}},      {"norm_b", {12}}};
  const auto own = layer.named_parameters();
  ASSERT_EQ(own.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(own[i].key(), expected[i].first);
    EXPECT_EQ(own[i].value().sizes(), at::IntArrayRef(expected[i].second));
  }
}

TEST(TransformerModule, DrawsItsWeights) {
  torch::manual_seed(1);
  auto config = small_config();
  config.hidden_size = 120;
  config.intermediate_size = -1;
  config.num_hidden_layers = 8;
  const auto deviation = [](const at::Tensor& weight) { return weight.std().item<double>(); };
  const auto own = DeepSpeedTransformerLayer(config).named_parameters();
  EXPECT_NEAR(deviation(own["attn_qkvw"]), 0.02, 1e-3);
  EXPECT_NEAR(deviation(own["inter_w"]), 0.02, 1e-3);
  EXPECT_NEAR(deviation(own["attn_ow"]), 0.005, 2e-4);
  EXPECT_NEAR(deviation(own["output_w"]), 0.005, 2e-4);
  for (const char* name : {"attn_nw", "norm_w"}) EXPECT_TRUE(own[name].eq(1).all().item<bool>()) << name;
  for (const char* name : {"attn_qkvb", "attn_ob", "attn_nb", "inter_b", "output_b", "norm_b"})
    EXPECT_TRUE(own[name].eq(0).all().item<bool>()) << name;
  config.adjust_init_range = false;
  EXPECT_NEAR(deviation(DeepSpeedTransformerLayer(config).named_parameters()["attn_ow"]), 0.02, 1e-3);
  config.adjust_init_range = true;
  config.num_hidden_layers = -1;
  EXPECT_ERROR(ConfigError, DeepSpeedTransformerLayer{config}, "num_hidden_layers: got -1",
               "adjust_init_range");
  config.initializer_range = -1;
  EXPECT_ERROR(ConfigError, DeepSpeedTransformerLayer{config}, "initializer_range: got -1");
  config = small_config();
  config.return_tuple = true;
  EXPECT_ERROR(ConfigError, DeepSpeedTransformerLayer{config}, "return_tuple", "Python");
}

TEST(TransformerModule, TakesInitialWeights) {
  auto config = small_config();
  config.initializer_range = -1;
  const std::vector<std::vector<int64_t>> shapes = {{12, 12}, {12, 12}, {12, 12}, {12, 12},
                                                    {12},     {20, 12}, {12, 20}, {12}};
  std::vector<at::Tensor> weights, biases;
  for (const auto& shape : shapes) {
    weights.push_back(at::randn(shape));
    biases.push_back(at::randn({shape[0]}));
  }
  biases[1] = at::Tensor();
  const auto own = DeepSpeedTransformerLayer(config, weights, biases).named_parameters();
  EXPECT_TRUE(own["attn_qkvw"].equal(at::cat({weights[0], weights[1], weights[2]})));
  EXPECT_TRUE(own["attn_qkvb"].equal(at::cat({biases[0], at::zeros({12}), biases[2]})));
  const std::vector<std::string> rest = {"attn_o", "attn_n", "inter_", "output_", "norm_"};
  for (size_t i = 0; i < rest.size(); ++i) {
    EXPECT_TRUE(own[rest[i] + "w"].equal(weights[3 + i])) << rest[i];
    EXPECT_TRUE(own[rest[i] + "b"].equal(biases[3 + i])) << rest[i];
  }
  auto wrong = weights;
  wrong[5] = at::randn({12, 20});
  EXPECT_ERROR(UsageError, DeepSpeedTransformerLayer(config, wrong, biases), "inter_w", "[12, 20]",
               "[20, 12]");
  wrong.pop_back();
  EXPECT_ERROR(UsageError, DeepSpeedTransformerLayer(config, wrong, biases), "7 initial weights", "8 each");
}

/// Sums the bytes that are saved for backward, of each storage once.
class CountBytes : public autograd::SavedTensorHooks {
 public:
  std::unique_ptr<autograd::PackedTensor> pack(const at::Tensor& tensor) override {
    bytes_[tensor.storage().unsafeGetStorageImpl()] = static_cast<int64_t>(tensor.storage().nbytes());
    return std::make_unique<autograd::KeptTensor>(tensor);
  }
  int64_t total() const {
    int64_t sum = 0;
    for (const auto& [storage, bytes] : bytes_) sum += bytes;
    return sum;
  }

 private:
  std::unordered_map<const void*, int64_t> bytes_;
};

int64_t saved_bytes(DeepSpeedTransformerConfig config, at::ScalarType dtype) {
  torch::manual_seed(2);
  DeepSpeedTransformerLayer layer(config);
  layer.to(dtype);
  const at::Tensor x = at::randn({2, 9, config.hidden_size}).to(dtype);
  CountBytes count;
  const autograd::SavedTensorScope scope(count);
  const at::Tensor output = layer.forward(x);
  output.sum().backward();
  return count.total();
}

TEST(TransformerModule, KeepsFewerBytesByEachMemoryOption) {
  const int64_t tokens = 2 * 9, hidden = 12, inter = 20, heads = 3, squares = 2 * heads * 9 * 9;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto size = static_cast<int64_t>(c10::elementSize(dtype));
    const int64_t statistics = tokens * 4;  // the mean of a norm's rows
    for (const bool pre : {true, false}) {
      auto config = small_config();
      config.pre_layer_norm = pre;
      const int64_t all = saved_bytes(config, dtype);
      const int64_t weights = (12 * 36 + 36 + 144 + 12 + 24 + 240 + 20 + 240 + 12 + 24) * size;
      const int64_t states = tokens * hidden * size;
      // x, its norm, q, k, v, context, r, f; post-LN has the last sum in place of the first norm.
      EXPECT_EQ(all, weights + 8 * states + 2 * tokens * inter * size + 2 * squares * size + 4 * statistics);
      config.gelu_checkpoint = true;
      EXPECT_EQ(all - saved_bytes(config, dtype), tokens * inter * size);
      config.gelu_checkpoint = false;
      config.attn_dropout_checkpoint = true;
      EXPECT_EQ(all - saved_bytes(config, dtype), squares * size);
      config.attn_dropout_checkpoint = false;
      config.normalize_invertible = true;
      // Pre-LN: both sums. Post-LN: both sums, but the output is kept, which the next layer keeps anyway.
      EXPECT_EQ(all - saved_bytes(config, dtype), (pre ? 2 : 1) * states + 2 * statistics);
      config.gelu_checkpoint = config.attn_dropout_checkpoint = true;
      EXPECT_EQ(all - saved_bytes(config, dtype),
                (pre ? 2 : 1) * states + 2 * statistics + tokens * inter * size + squares * size);
    }
  }
}

TEST(TransformerModule, KeepsNoProbabilitiesWithoutDropoutOfThem) {
  auto config = small_config();
  const int64_t with_dropout = saved_bytes(config, at::kFloat);
  config.attn_dropout_ratio = 0;
  EXPECT_EQ(with_dropout - saved_bytes(config, at::kFloat), 2 * 2 * 3 * 9 * 9 * 4 - 2 * 3 * 9 * 4);
}

TEST(TransformerModule, NamesTheArgumentThatIsWrong) {
  auto config = small_config();
  config.layer_id = 41;
  config.batch_size = 2;
  DeepSpeedTransformerLayer layer(config);
  const at::Tensor x = at::randn({2, 5, 12});
  EXPECT_ERROR(UsageError, layer.forward({}), "transformer layer 41: hidden_states: got no tensor");
  EXPECT_ERROR(UsageError, layer.forward(at::randn({5, 12})), "hidden_states: got sizes [5, 12]");
  EXPECT_ERROR(UsageError, layer.forward(at::randn({0, 5, 12})), "hidden_states: got sizes [0, 5, 12]");
  EXPECT_ERROR(UsageError, layer.forward(at::randn({2, 5, 9})), "attn_qkvw", "[36, 12]", "[2, 5, 9]");
  EXPECT_ERROR(UsageError, layer.forward(at::randn({2, 5, 10})), "heads: got 3", "10");
  EXPECT_ERROR(UsageError, layer.forward(at::ones({2, 5, 12}, at::kLong)), "hidden_states: got Long");
  EXPECT_ERROR(UsageError, layer.forward(x.to(at::kBFloat16)), "attn_qkvw is of Float", "BFloat16");
  EXPECT_ERROR(UsageError, layer.forward(at::randn({3, 5, 12})), "got 3 sequences, batch_size allows 2");
  EXPECT_ERROR(UsageError, layer.forward(x, at::ones({2, 1, 1, 5}, at::kLong)), "attention_mask: got Long");
  EXPECT_ERROR(UsageError, layer.forward(x, at::zeros({2, 5})), "attention_mask: got sizes [2, 5]",
               "expected [2 or 1, 3 or 1, 5 or 1, 5]");
  EXPECT_ERROR(UsageError, layer.forward(x, at::zeros({2, 1, 1, 4})), "attention_mask: got sizes");
  EXPECT_ERROR(UsageError, layer.forward(x, at::zeros({3, 1, 1, 5})), "attention_mask: got sizes");
  EXPECT_ERROR(UsageError, layer.forward(x, at::zeros({2, 1, 1, 5}).requires_grad_()), "detach()");
  EXPECT_ERROR(UsageError, layer.forward(x.to(at::kMeta)), "attn_qkvw is on cpu", "meta");
  config.fp16 = true;
  EXPECT_ERROR(UsageError, DeepSpeedTransformerLayer(config).forward(x), "expected float16", "fp16");
}

}  // namespace
}  // namespace deepspeed::testing
