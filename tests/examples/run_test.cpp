// What a run writes and reads besides training: progress, options, the model file, samples, weights.
#include <filesystem>
#include <fstream>

#include <torch/utils.h>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/safetensors.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/deepspeed.h"

#include "gpt.h"
#include "hugging_face.h"
#include "model_file.h"
#include "options.h"
#include "progress.h"
#include "sampler.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace gpt2 {
namespace {
namespace fs = std::filesystem;
using examples::format;
using examples::format_duration;
using examples::Progress;
using examples::resident_bytes;
using examples::StepReport;
using testing::HasSubstr;

const GptConfig kSmall{.vocabulary = 3, .context = 4, .layers = 1, .heads = 1, .width = 8};
const Vocabulary kVocabulary({'\n', 'a', 'b'});

struct RunFolder : testing::Test {
  fs::path folder = fs::temp_directory_path() / ("gpt2_run." + std::to_string(getpid()));
  void SetUp() override { fs::remove_all(folder); }
  void TearDown() override { fs::remove_all(folder); }
};

TEST(Progress, FormatsAStep) {
  const StepReport report{20, 300, 2.51434, 1e-3, 0.912, 18240.0, 412'300'000, 41.2};
  EXPECT_EQ(format(report),
            "step 20/300  loss 2.5143  lr 1.00e-03  norm 0.91  18.2k tok/s  412 MB  0:41 left");
  EXPECT_EQ(format_duration(3600 * 3 + 250), "3:04:10");
  EXPECT_EQ(format_duration(59.7), "1:00");
  EXPECT_GT(resident_bytes(), 1'000'000);
}

TEST(Progress, WritesPlainLinesToAFileAndAlwaysTheLastStep) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, /*silent=*/false, /*num_steps=*/5, /*plain_every=*/2, /*tokens_per_step=*/10);
    for (int step = 1; step <= 5; ++step) progress.step(step, 1.0, 0.1, std::nullopt);
    progress.note("done");
    Progress silent(file, /*silent=*/true, 5, 2, 10);
    silent.note("never shown");
  }
  std::rewind(file);
  std::vector<std::string> starts;
  char line[256];
  while (std::fgets(line, sizeof line, file)) starts.push_back(std::string(line).substr(0, 8));
  std::fclose(file);
  EXPECT_EQ(starts, (std::vector<std::string>{"step 2/5", "step 4/5", "step 5/5", "done\n"}));
}

TEST(Options, ParseAndRejectWhatMissesAPart) {
  const auto parse = [](std::vector<std::string> arguments) {
    CLI::App app;
    Options options;
    add_options(app, options);
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
    return options;
  };
  auto options = parse({"--steps", "7", "--width", "96", "--sample", "5", "--prompt", "To be"});
  EXPECT_EQ(options.steps, 7);
  EXPECT_EQ(options.model.width, 96);
  EXPECT_EQ(options.sample.prompt, "To be");
  EXPECT_ERROR(deepspeed::UsageError, validate(options),
               "training needs --deepspeed_config FILE");  // no --deepspeed_config
  options.config.deepspeed_config = "ds_config.json";
  EXPECT_NO_THROW(validate(options));
  options.save_every = 5;
  EXPECT_ERROR(deepspeed::UsageError, validate(options), "--save_every needs --save_dir");
  EXPECT_ERROR(deepspeed::UsageError, validate(parse({"--fp32_weights", "x.bin", "--sample", "5"})),
               "--fp32_weights needs --save_dir");
  EXPECT_ERROR(CLI::ValidationError, parse({"--steps", "0"}), "--steps: Value 0 not in range");
}

TEST_F(RunFolder, ModelFileComesBack) {
  write_model_file(folder, {kSmall, kVocabulary});
  const auto read = read_model_file(folder);
  EXPECT_EQ(read.vocabulary, kVocabulary);
  EXPECT_EQ(to_json(read), to_json({kSmall, kVocabulary}));
  EXPECT_EQ(read.config.vocabulary, 3);
  EXPECT_ERROR(deepspeed::IoError, read_model_file(folder / "nowhere"), "there is no file",
               "nowhere/gpt2.json");
  EXPECT_ERROR(deepspeed::IoError, from_json("{\"layers\": 1}", "x.json"), "x.json does not describe a model",
               "'vocabulary' not found");
  EXPECT_ERROR(deepspeed::IoError, from_json("no json", "x.json"), "x.json does not describe a model",
               "line 1, column 2");
}

TEST_F(RunFolder, WeightsComeFromAFileOrTheErrorNamesTheParameter) {
  fs::create_directories(folder);
  const auto file = folder / "pytorch_model.bin";
  torch::manual_seed(1);
  GPT trained(kSmall), model(kSmall);
  deepspeed::checkpoint::Dict tensors;
  for (const auto& item : trained.named_parameters()) tensors.set(item.key(), item.value().detach());
  deepspeed::checkpoint::write_torch_archive(file, tensors);
  load_weights(model, file);
  for (const auto& item : model.named_parameters()) {
    EXPECT_TRUE(item.value().equal(trained.named_parameters()[item.key()])) << item.key();
  }
  tensors.set("h.0.ln_1.bias", at::zeros({9}));
  deepspeed::checkpoint::write_torch_archive(file, tensors);
  EXPECT_ERROR(deepspeed::CheckpointError, load_weights(model, file), "h.0.ln_1.bias", "[9], expected [8]");
}

TEST_F(RunFolder, ReadsAModelFromAFolderOfHuggingFace) {
  torch::manual_seed(1);
  const auto trained = std::make_shared<GPT>(
      GptConfig{.vocabulary = 3, .context = 4, .layers = 1, .heads = 1, .width = 8, .inner = 12});
  deepspeed::testing::run_ranks(2, [&](deepspeed::comm::World& world) {
    const auto config =
        deepspeed::Json{{"train_micro_batch_size_per_gpu", 1}, {"zero_optimization", {{"stage", 3}}}};
    const auto engine = deepspeed::initialize(trained, {.config = config, .world = world}).engine;
    save_hugging_face(*engine, folder, trained->config(), {{"eos_token_id", 2}});
  });
  const auto tensors =
      deepspeed::by_name(deepspeed::checkpoint::read_safetensors(folder / "model.safetensors"));
  EXPECT_EQ(tensors.at("transformer.h.0.mlp.c_fc.weight").sizes(), (std::vector<int64_t>{8, 12}));
  const auto read = read_hugging_face(folder);
  EXPECT_EQ(read.other_keys["eos_token_id"], 2);
  EXPECT_EQ(read.config.inner, 12);
  const auto model = std::make_shared<GPT>(read.config);
  load_hugging_face(model, folder);
  for (const auto& item : model->named_parameters())
    EXPECT_TRUE(item.value().equal(trained->named_parameters()[item.key()])) << item.key();
}

TEST(Sampler, ContinuesThePromptAndLeavesTheDefaultGeneratorAlone) {
  torch::manual_seed(1);
  GPT model(kSmall);
  torch::manual_seed(2);
  const auto expected = at::rand({4});
  torch::manual_seed(2);
  const auto text = sample(model, kVocabulary, {.prompt = "ab", .num_tokens = 20, .seed = 7});
  EXPECT_TRUE(at::rand({4}).equal(expected));
  EXPECT_EQ(text.size(), 22u);
  EXPECT_TRUE(text.starts_with("ab"));
  EXPECT_EQ(text, sample(model, kVocabulary, {.prompt = "ab", .num_tokens = 20, .seed = 7}));
  EXPECT_NE(text, sample(model, kVocabulary, {.prompt = "ab", .num_tokens = 20, .seed = 8}));
  EXPECT_TRUE(model.is_training());
}

TEST(Sampler, TakesTheLikeliestTokenAtTemperatureZero) {
  torch::manual_seed(1);
  GPT model(kSmall);
  auto parameters = model.named_parameters();
  torch::NoGradGuard no_grad;
  parameters["ln_f.weight"].zero_();  // the last layer's output is its bias alone, the head's row for 'b'
  parameters["ln_f.bias"].copy_(parameters["wte.weight"][2] * 100);
  parameters["wte.weight"][1].copy_(-parameters["wte.weight"][2]);
  parameters["wte.weight"][0].zero_();
  EXPECT_EQ(sample(model, kVocabulary, {.num_tokens = 6, .temperature = 0.0}), "\nbbbbbb");
  EXPECT_ERROR(deepspeed::UsageError, sample(model, kVocabulary, {.num_tokens = -1}), "got -1 tokens",
               "expected neither to be negative");
  EXPECT_ERROR(deepspeed::UsageError, sample(model, kVocabulary, {.prompt = "z", .num_tokens = 1}),
               "byte 122 does not occur");
}

// ZeRO-Inference: no optimizer, and parameters that lie in the host's memory or on a disk between their uses.
TEST_F(RunFolder, SamplesInAnEngineWhatTheWholeModelSamples) {
  const GptConfig config{.vocabulary = 3, .context = 16, .layers = 2, .heads = 2, .width = 64};
  torch::manual_seed(3);
  GPT trained(config);
  write_model_file(folder, {config, kVocabulary});
  deepspeed::checkpoint::Dict tensors;
  for (const auto& item : trained.named_parameters()) tensors.set(item.key(), item.value().detach());
  deepspeed::checkpoint::write_torch_archive(folder / "pytorch_model.bin", tensors);
  const SampleOptions options{.prompt = "ab", .num_tokens = 30, .seed = 7};
  const std::string expected = sample(trained, kVocabulary, options);
  for (const char* device : {"none", "cpu", "nvme"}) {
    std::string offload =
        R"("device": ")" + std::string(device) + R"(", "nvme_path": ")" + folder.string() + '"';
    if (device != std::string("nvme")) offload = R"("device": ")" + std::string(device) + '"';
    std::ofstream(folder / "ds_config.json")
        << R"({"train_micro_batch_size_per_gpu": 1, "aio": {"block_size": 4096}, "log_level": "error",)"
        << R"("zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 100, "offload_param": {)"
        << offload << (device == std::string("nvme") ? R"(, "max_in_cpu": 0, "buffer_count": 2)" : "")
        << "}}}";
    for (const int ranks : {1, 2}) {
      deepspeed::testing::run_ranks(ranks, [&](deepspeed::comm::World&) {
        EXPECT_EQ(sample_from_file(folder / "pytorch_model.bin", folder, options, folder / "ds_config.json"),
                  expected)
            << device;
      });
    }
  }
}

}  // namespace
}  // namespace gpt2
