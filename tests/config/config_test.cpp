#include "deepspeed/config/config.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/config/load.h"
#include "tests/support/error_of.h"

namespace deepspeed::config {
namespace {

using ::testing::HasSubstr;

TEST(Config, HasTheDocumentedDefaults) {
  const DeepSpeedConfig config = load_config(R"({"train_batch_size": 8})", 2);
  EXPECT_EQ(config.train_batch_size, 8);
  EXPECT_EQ(config.train_micro_batch_size_per_gpu, 4);
  EXPECT_EQ(config.gradient_accumulation_steps, 1);
  EXPECT_EQ(config.gradient_clipping, 1.0);
  EXPECT_FALSE(config.steps_per_print || config.seed || config.communication_data_type || config.log_level);
  EXPECT_EQ(config.gradient_allreduce_op, "mean");
  EXPECT_FALSE(config.fp16.enabled);
  EXPECT_EQ(config.fp16.loss_scale, 0.0);
  EXPECT_EQ(config.fp16.initial_scale_power, 16);
  EXPECT_EQ(config.fp16.loss_scale_window, 1000);
  EXPECT_EQ(config.fp16.hysteresis, 2);
  EXPECT_EQ(config.fp16.min_loss_scale, 1);
  EXPECT_FALSE(config.bf16.enabled);
  EXPECT_TRUE(config.bf16.check_grad_overflow);
  EXPECT_FALSE(config.optimizer || config.scheduler);
  EXPECT_EQ(config.zero_optimization.stage, 0);
  EXPECT_TRUE(config.zero_optimization.contiguous_gradients && config.zero_optimization.reduce_scatter);
  EXPECT_EQ(config.zero_optimization.reduce_bucket_size, 500'000'000);
  EXPECT_EQ(config.zero_optimization.allgather_bucket_size, 500'000'000);
  EXPECT_FALSE(config.zero_optimization.overlap_comm.has_value());
  EXPECT_TRUE(config.zero_optimization.offload_param.pin_memory);
  EXPECT_EQ(config.zero_optimization.offload_optimizer.device, "none");
  EXPECT_EQ(config.checkpoint.tag_validation, "Warn");
  EXPECT_EQ(config.raw, (Json{{"train_batch_size", 8}}));
}

/// One key, the value as text, and the value that it has in the loaded config.
struct Accepted {
  const char* path;
  const char* given;
  const char* loaded;
};

TEST(Config, TakesTheValuesThatDeepSpeedTakes) {
  const Accepted cases[] = {
      {"gradient_clipping", "0", "0.0"},
      {"gradient_clipping", "\"0.5\"", "0.5"},
      {"steps_per_print", "1e1", "10"},
      {"dump_state", "\"on\"", "true"},
      {"gradient_predivide_factor", "2", "2.0"},
      {"prescale_gradients", "1", "true"},
      {"gradient_allreduce_op", "\"SUM\"", "\"sum\""},
      {"communication_data_type", "\"BF16\"", "\"bf16\""},
      {"communication_data_type", "null", "null"},
      {"sequence_parallel_size", "1", "1"},
      {"data_parallel_size", "1", "1"},
      {"seed", "\"42\"", "42"},
      {"vocabulary_size", "50257", "50257"},
      {"log_level", "\"WARNING\"", "\"warning\""},
      {"zero_allow_untested_optimizer", "\"yes\"", "true"},
      {"dataloader_drop_last", "\"t\"", "true"},
      {"checkpoint.tag_validation", "\"FAIL\"", "\"Fail\""},
      {"fp16.enabled", "\"auto\"", "false"},
      {"fp16.loss_scale", "128", "128.0"},
      {"fp16.loss_scale_window", "\"500\"", "500"},
      {"fp16.initial_scale_power", "12.0", "12"},
      {"fp16.min_loss_scale", "0", "0"},
      {"bf16.enabled", "true", "true"},
      {"bf16.check_grad_overflow", "\"off\"", "false"},
      {"zero_optimization.stage", "\"auto\"", "0"},
      {"zero_optimization.stage", "\"2\"", "2"},
      {"zero_optimization.reduce_bucket_size", "5e8", "500000000"},
      {"zero_optimization.reduce_bucket_size", "\"auto\"", "500000000"},
      {"zero_optimization.overlap_comm", "true", "true"},
      {"zero_optimization.overlap_comm", "null", "null"},
      {"zero_optimization.allgather_bucket_size", "7", "7"},  // odd, but unused at stage 0
      {"zero_optimization.sub_group_size", "1e9", "1000000000"},
      {"zero_optimization.mics_shard_size", "0", "0"},
      {"zero_optimization.offload_optimizer.device", "\"NONE\"", "\"none\""},
      {"zero_optimization.offload_optimizer.ratio", "1", "1.0"},
  };
  for (const Accepted& c : cases) {
    const Json config = config_with(c.path, Json::parse(c.given));
    ASSERT_EQ(load_error(config), "no error") << config;
    EXPECT_EQ(to_json(load_config(config, 1))[pointer(c.path)].dump(), Json::parse(c.loaded).dump())
        << c.path;
  }
}

TEST(Config, TakesTwoOldKeysUnderTheirNewNames) {
  const auto config = load_config(R"({"train_batch_size": 8, "zero_optimization": {"stage": 1},
                                      "fp32_allreduce": true, "disable_allgather": true})",
                                  1);
  EXPECT_EQ(config.communication_data_type, "fp32");
  EXPECT_FALSE(config.zero_optimization.allgather_partitions);
  EXPECT_TRUE(load_config(R"({"train_batch_size": 8})", 1).zero_optimization.allgather_partitions);
}

TEST(Config, ReadsOlderFormsOfItsKeys) {
  const auto zero = [](const char* text) { return load_config(text, 1).zero_optimization; };
  EXPECT_EQ(zero(R"({"train_batch_size": 8, "zero_optimization": true})").stage, 1);
  EXPECT_EQ(zero(R"({"train_batch_size": 8, "zero_optimization": false})").stage, 0);
  const auto old = zero(R"({"train_batch_size": 8, "zero_optimization": true, "allgather_size": 64})");
  EXPECT_EQ(old.allgather_bucket_size, 64);
  EXPECT_TRUE(
      zero(R"({"train_batch_size": 8, "zero_optimization": {"stage3_gather_fp16_weights_on_model_save": 1}})")
          .stage3_gather_16bit_weights_on_model_save);
  EXPECT_EQ(zero(R"({"train_batch_size": 8, "zero_optimization": {"prefetch_bucket_size": 5}})")
                .stage3_prefetch_bucket_size,
            5);
  EXPECT_EQ(zero(R"({"train_batch_size": 8, "zero_optimization": {"cpu_offload": false}})")
                .offload_optimizer.device,
            "none");
  EXPECT_TRUE(load_config(R"({"train_batch_size": 8, "bfloat16": {"enabled": true}})", 1).bf16.enabled);
  EXPECT_TRUE(
      load_config(R"({"train_batch_size": 8, "bf16": null, "bfloat16": {"enabled": true}})", 1).bf16.enabled);
  expect_refused({
      {R"({"train_batch_size": 8, "zero_optimization": {"cpu_offload": true}})",
       "zero_optimization.offload_optimizer.device: got \"cpu\" at stage 0"},
      {R"({"train_batch_size": 8, "zero_optimization": {"cpu_offload_param": true}})",
       "zero_optimization.offload_param.device: got \"cpu\" at stage 0"},
      {R"({"train_batch_size": 8, "zero_optimization": {"cpu_offload": false, "offload_optimizer": {}}})",
       "zero_optimization.cpu_offload: got it beside 'zero_optimization.offload_optimizer'"},
      {R"({"train_batch_size": 8, "zero_optimization": {"offload_optimizer": {}, "cpu_offload": false}})",
       "zero_optimization.cpu_offload: got it beside"},
      {R"({"train_batch_size": 8, "zero_optimization": {"prefetch_bucket_size": 5, "stage3_prefetch_bucket_size": 5}})",
       "zero_optimization.stage3_prefetch_bucket_size: got it beside"},
      {R"({"train_batch_size": 8, "bf16": {}, "bfloat16": {}})", "bfloat16: got it beside 'bf16'"},
  });
}

TEST(Config, KnowsTheSpellingsOfATypeAndKeepsOne) {
  for (const auto& [spelling, name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"fp32", "fp32"},
                                                                  {"float", "fp32"},
                                                                  {"float32", "fp32"},
                                                                  {"torch.float32", "fp32"},
                                                                  {"FLOAT32", "fp32"}}) {
    EXPECT_EQ(load_config(config_with("data_types.param_dtype", spelling), 1).data_types.param_dtype, name);
  }
  for (const auto& [spelling, name] :
       std::initializer_list<std::pair<const char*, const char*>>{{"fp16", "fp16"},
                                                                  {"half", "fp16"},
                                                                  {"float16", "fp16"},
                                                                  {"torch.float16", "fp16"},
                                                                  {"bf16", "bf16"},
                                                                  {"bfloat16", "bf16"},
                                                                  {"torch.bfloat16", "bf16"}}) {
    EXPECT_EQ(load_config(config_with("torch_autocast.dtype", spelling), 1).torch_autocast.dtype, name);
  }
  EXPECT_THAT(load_error(config_with("torch_autocast.dtype", "int8")),
              HasSubstr("got \"int8\", expected one of fp32"));
}

TEST(Config, ReadsPipelinesWithAutoForTheModulesOwnChoice) {
  const DeepSpeedConfig asked = load_config(
      R"({"train_batch_size": 8, "pipeline": {"stages": 4, "partition": "type:Block", "schedule": "Interleaved",
          "model_chunks": 2, "activation_checkpoint_interval": 3, "use_reentrant": false}})",
      1);
  EXPECT_EQ(asked.pipeline.stages, 4);
  EXPECT_EQ(asked.pipeline.partition, "type:Block");
  EXPECT_EQ(asked.pipeline.schedule, "interleaved");
  EXPECT_EQ(asked.pipeline.model_chunks, 2);
  EXPECT_EQ(asked.pipeline.activation_checkpoint_interval, 3);
  EXPECT_FALSE(asked.pipeline.use_reentrant);
  const DeepSpeedConfig left =
      load_config(R"({"train_batch_size": 8, "pipeline": {"stages": "auto", "partition": "auto"}})", 1);
  EXPECT_FALSE(left.pipeline.stages.has_value());
  EXPECT_EQ(left.pipeline.partition, "best");
  EXPECT_EQ(left.pipeline.schedule, "1f1b");
}

TEST(Config, ReadsEverySectionIntoItsStruct) {
  const DeepSpeedConfig config = load_config(
      R"({"train_batch_size": 8, "torch_autocast": {"lower_precision_safe_modules": ["torch.nn.Linear"]},
          "tensorboard": {"output_path": "out"}, "flops_profiler": {"profile_step": 7},
          "activation_checkpointing": {"number_checkpoints": null}, "aio": {"queue_depth": 32},
          "progressive_layer_drop": {"enabled": false, "theta": 0.5},
          "zero_optimization": {"leaf_module": {"classes": "Block"}}})",
      1);
  EXPECT_EQ(config.torch_autocast.lower_precision_safe_modules, std::vector<std::string>{"torch.nn.Linear"});
  EXPECT_EQ(config.tensorboard.output_path, "out");
  EXPECT_EQ(config.csv_monitor.output_path, "");
  EXPECT_EQ(config.flops_profiler.profile_step, 7);
  EXPECT_FALSE(config.activation_checkpointing.number_checkpoints.has_value());
  EXPECT_EQ(config.aio.queue_depth, 32);
  EXPECT_EQ(config.progressive_layer_drop->theta, 0.5);
  EXPECT_EQ(config.zero_optimization.leaf_module.classes, std::vector<std::string>{"Block"});
  EXPECT_FALSE(config.amp || config.checkpoint.writer);
  EXPECT_EQ(to_json(load_config(to_json(config), 1)), to_json(config));
}

TEST(Config, KeepsSectionsThatNothingReadsAsTheyAreGiven) {
  const DeepSpeedConfig config = load_config(
      R"({"train_batch_size": 8, "comet": {"mode": "GET"}, "elasticity": {"micro_batch_sizes": [1, "2"]},
          "autotuning": {"model_info": {"num_layers": 3}},
          "data_efficiency": {"data_routing": {"random_ltd": {"layer_token_lr_schedule": {"unknown": 1}}}},
          "weight_quantization": {"enabled": false, "q_type": "asymmetric"}, "expert_parallel": {"top_k": 2}})",
      1);
  EXPECT_EQ(config.elasticity, Json::parse(R"({"micro_batch_sizes": [1, 2]})"));
  EXPECT_EQ(config.weight_quantization["q_type"], "asymmetric");
  EXPECT_TRUE(config.sparse_attention.is_null() && config.zero_optimization.zenflow.is_null());
  const Json printed = to_json(config);
  EXPECT_EQ(printed["comet"]["mode"], "get");
  EXPECT_EQ(printed["comet"]["samples_log_interval"], 100);
  EXPECT_EQ(printed["autotuning"]["model_info"],
            Json::parse(R"({"profile": false, "num_params": null, "hidden_size": null, "num_layers": 3})"));
  EXPECT_EQ(printed["data_efficiency"]["data_routing"]["random_ltd"]["layer_token_lr_schedule"],
            Json::parse(R"({"enabled": false})"));
  EXPECT_EQ(printed["expert_parallel"]["top_k"], 2);
  EXPECT_FALSE(printed.contains("sparse_attention") || printed["elasticity"].contains("model_info") ||
               to_json(load_config(R"({"train_batch_size": 8})", 1))["autotuning"].contains("model_info"));
  EXPECT_EQ(to_json(load_config(printed, 1)), printed);
}

TEST(Config, PrintsAnOlderFormAsThePresentOne) {
  const Json printed =
      to_json(load_config(R"({"train_batch_size": 8, "zero_optimization": true, "allgather_size": 64})", 1));
  EXPECT_EQ(printed["zero_optimization"]["allgather_bucket_size"], 64);
  EXPECT_EQ(to_json(load_config(printed, 1)), printed);
}

TEST(Config, KeepsParametersOfOptimizerAndSchedulerAsTheyAre) {
  const DeepSpeedConfig config = load_config(
      R"({"train_batch_size": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "betas": [0.9, 0.95]}},
          "scheduler": {"type": "WarmupLR"}})",
      1);
  EXPECT_EQ(config.optimizer->type, "AdamW");
  EXPECT_EQ(config.optimizer->params, Json::parse(R"({"lr": 1e-3, "betas": [0.9, 0.95]})"));
  EXPECT_EQ(config.scheduler->type, "WarmupLR");
  EXPECT_EQ(config.scheduler->params, Json::object());
  EXPECT_FALSE(load_config(R"({"train_batch_size": 8, "optimizer": {"params": {"lr": 1}}})", 1).optimizer);
}

TEST(Config, CanBeReadWithFeaturesThatDoNotExist) {
  const char* const text = R"({"train_batch_size": 8, "autotuning": {"enabled": true}})";
  EXPECT_EQ(read_config(text, 2).autotuning, Json({{"enabled", true}}));
  EXPECT_EQ(read_config(text, 2).train_micro_batch_size_per_gpu, 4);
  EXPECT_ERROR(ConfigError, load_config(text, 2), "autotuning.enabled: not supported yet");
  EXPECT_ERROR(ConfigError, read_config(R"({"train_batch_size": 8, "elastic": {}})", 2), "elastic");
}

TEST(Config, LoadsWhatItPrints) {
  const DeepSpeedConfig config = load_config(
      R"({"train_batch_size": 48, "gradient_accumulation_steps": 3, "fp16": {"enabled": true, "hysteresis": 4},
          "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 1000},
          "optimizer": {"type": "Adam", "params": {"lr": 0.1}}, "communication_data_type": "fp32", "seed": 7})",
      4);
  const Json printed = to_json(config);
  EXPECT_EQ(printed["train_micro_batch_size_per_gpu"], 4);
  EXPECT_EQ(to_json(load_config(printed, 4)), printed);
}

// As a Python dict has it: no JSON text can.
TEST(Config, TakesInfinityForNeverIfAKeyHasThatMeaning) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(load_config(config_with("steps_per_print", infinity), 1).steps_per_print, std::nullopt);
  EXPECT_EQ(load_config(config_with("steps_per_print", 5e8), 1).steps_per_print, 500'000'000);
  EXPECT_THAT(load_error(config_with("steps_per_print", -infinity)),
              HasSubstr("steps_per_print: got -Infinity, expected a whole number of at least 1, or null"));
  EXPECT_THAT(load_error(config_with("train_batch_size", infinity)),
              HasSubstr("train_batch_size: got Infinity, expected a whole number of at least 1"));
  EXPECT_THAT(load_error(config_with("gradient_clipping", std::nan(""))),
              HasSubstr("gradient_clipping: got NaN, expected a number"));
}

}  // namespace
}  // namespace deepspeed::config
