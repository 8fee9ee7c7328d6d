#include "deepspeed/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/config/load.h"

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

/// JSON text and what its error must say.
struct Refused {
  const char* text;
  const char* error;
};

void expect_refused(std::initializer_list<Refused> cases) {
  for (const Refused& c : cases) EXPECT_THAT(load_error(c.text), HasSubstr(c.error)) << c.text;
}

TEST(Config, NamesPathAndExpectationOfAWrongValue) {
  expect_refused({
      {R"({})", "train_batch_size: got neither"},
      {R"({"train_batch_size": "auto"})", "train_batch_size: got \"auto\""},
      {R"({"train_batch_size": "auto"})", "the client must resolve \"auto\""},
      {R"({"train_batch_size": 3686.4})", "train_batch_size: got 3686.4, expected a whole number"},
      {R"({"train_batch_size": 8, "gradient_clipping": "auto"})",
       "gradient_clipping: got \"auto\", expected a number"},
      {R"({"train_batch_size": 8, "seed": 1180591620717411303424})", "seed: got 1.18"},
      {R"({"train_batch_size": 8, "seed": 9223372036854775808})", "seed: got 9223372036854775808"},
      {R"({"train_batch_size": 8, "gradient_clipping": 1e400})", "gradient_clipping: got 1e400"},
      {R"({"train_batch_size": 8, "gradient_allreduce_op": "max"})", "expected one of mean, sum"},
      {R"({"train_batch_size": 8, "communication_data_type": "float16"})",
       "communication_data_type: got \"float16\""},
      {R"({"train_batch_size": 8, "fp16": null})", "fp16: got null, expected an object"},
      {R"({"train_batch_size": 8, "zero_optimization": 2})", "zero_optimization: got 2, expected an object"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 4}})",
       "expected a whole number from 0 to 3"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": null}})",
       "zero_optimization.stage: got null"},
      {R"({"train_batch_size": 8, "zero_optimization": {"legacy_stage1": "yes"}})",
       "legacy_stage1: got \"yes\", expected false"},
      {R"({"train_batch_size": 8, "fp16": {"loss_scale": true}})", "fp16.loss_scale: got true"},
      {R"({"train_batch_size": 8, "fp16": {"min_loss_scale": false}})", "fp16.min_loss_scale: got false"},
      {R"({"train_batch_size": 8, "checkpoint": {"tag_validation": "no"}})",
       "expected one of Warn, Ignore, Fail"},
      {R"({"train_batch_size": 8, "amp": {"opt_level": "O1"}})", "amp.enabled: missing"},
      {R"({"train_batch_size": 8, "optimizer": {"type": 1}})", "optimizer.type: got 1, expected a string"},
  });
}

TEST(Config, SuggestsTheNearestKnownKey) {
  expect_refused({
      {R"({"train_batchsize": 8})", "train_batchsize: unknown key"},
      {R"({"train_batchsize": 8})", "did you mean 'train_batch_size'?"},
      {R"({"train_batch_size": 8, "zero_optimisation": {}})", "did you mean 'zero_optimization'?"},
      {R"({"train_batch_size": 8, "fp16": {"enable": true}})", "did you mean 'fp16.enabled'?"},
      {R"({"train_batch_size": 8, "optimizer": {"param": {}}})", "did you mean 'optimizer.params'?"},
      {R"({"train_batch_size": 8, "Seed": 1})", "did you mean 'seed'?"},
      {"{\"train_batch_size\": 8, \"a\\u0000\\n b\": 1}", "\"a\\u0000\\n b\": unknown key"},
  });
}

TEST(Config, SuggestsTheKeysThatContainAnUnknownOne) {
  expect_refused({
      {R"({"train_micro_batch_size": 8})", "did you mean 'train_micro_batch_size_per_gpu'?"},
      {R"({"batch_size": 8})", "did you mean 'train_batch_size' or 'train_micro_batch_size_per_gpu'?"},
      {R"({"accumulation_steps": 8})", "did you mean 'gradient_accumulation_steps'?"},
  });
}

TEST(Config, SuggestsWhereAKeyOfAnotherSectionStands) {
  expect_refused({
      {R"({"train_batch_size": 8, "stage": 2})", "did you mean 'zero_optimization.stage'?"},
      {R"({"train_batch_size": 8, "load_from_fp32_weights": true})",
       "did you mean 'zero_optimization.load_from_fp32_weights'?"},
      {R"({"train_batch_size": 8, "bf16": {"loss_scale": 0}})", "did you mean 'fp16.loss_scale'?"},
      {R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "lr": 0.1}})",
       "did you mean 'optimizer.params.lr'?"},
      {R"({"train_batch_size": 8, "warmup_num_steps": 10})",
       "did you mean 'scheduler.params.warmup_num_steps'?"},
      {R"({"train_batch_size": 8, "zero_optimization": {"nvme_path": "/tmp"}})",
       "did you mean 'zero_optimization.offload_param.nvme_path' or "
       "'zero_optimization.offload_optimizer.nvme_path'?"},
  });
  EXPECT_THAT(load_error(R"({"train_batch_size": 8, "enabled": true})"),
              ::testing::Not(HasSubstr("did you mean")))
      << "too many sections have it";
}

TEST(Config, SuggestsTheObjectWhereASectionIsGivenAsOneValue) {
  expect_refused({
      {R"({"train_batch_size": 8, "fp16": true})",
       "fp16: got true, expected an object; did you mean "
       "{\"enabled\":true}?"},
      {R"({"train_batch_size": 8, "zero_optimization": 2})", "did you mean {\"stage\":2}?"},
      {R"({"train_batch_size": 8, "zero_optimization": {"offload_optimizer": "CPU"}})",
       "offload_optimizer: got \"CPU\", expected an object, or null; did you mean {\"device\":\"cpu\"}?"},
      {R"({"train_batch_size": 8, "optimizer": "Adam"})", "did you mean {\"type\":\"Adam\"}?"},
      {R"({"train_batch_size": 8, "fp16": "auto"})", "\"auto\" may stand for the values of its keys"},
  });
  for (const char* text :
       {R"({"train_batch_size": 8, "zero_optimization": {"offload_optimizer": true}})",
        R"({"train_batch_size": 8, "optimizer": "auto"})", R"({"train_batch_size": 8, "fp16": null})"}) {
    EXPECT_THAT(load_error(text), ::testing::Not(HasSubstr(";"))) << text;
  }
}

TEST(Config, NamesBothSpellingsOfAKeyThatIsSetTwice) {
  expect_refused({
      {R"({"train_batch_size": 8, "bfloat16": {}, "bf16": {}})", "bf16: got it beside 'bfloat16', expected"},
      {R"({"train_batch_size": 8, "bf16": {}, "bfloat16": {}})", "bfloat16: got it beside 'bf16', expected"},
      {R"({"train_batch_size": 8, "aio": {"thread_count": 4, "intra_op_parallelism": 4}})",
       "aio.intra_op_parallelism: got it beside 'aio.thread_count', expected one of them"},
  });
}

TEST(Config, RefusesContradictions) {
  expect_refused({
      {R"({"train_batch_size": 8, "fp16": {"enabled": true}, "bf16": {"enabled": true}})",
       "bf16.enabled: got true"},
      {R"({"train_batch_size": 8, "fp16": {"enabled": true, "loss_scale_window": 0}})",
       "fp16.loss_scale_window: got 0"},
      {R"({"train_batch_size": 8, "fp16": {"enabled": true, "min_loss_scale": 0}})",
       "fp16.min_loss_scale: got 0"},
      {R"({"train_batch_size": 8, "bf16": {"bf16_optimizer_states": true}, "zero_optimization": {"stage": 1}})",
       "bf16.bf16_optimizer_states"},
      {R"({"train_batch_size": 8, "fp16": {"enabled": true, "loss_scale": 8}, "optimizer": {"type": "Lamb"}})",
       "fp16.loss_scale: got 8, expected 0"},
      {R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"max_grad_norm": 1.0}}})",
       "optimizer.params.max_grad_norm: got 1.0, expected the key gradient_clipping"},
      {R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": "auto"}}})",
       "optimizer.params.lr"},
      {R"({"train_batch_size": 8, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}})",
       "scheduler.params.warmup_num_steps"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 1, "allgather_bucket_size": 7}})",
       "allgather_bucket_size: got 7, expected an even number"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 2}, "gradient_predivide_factor": 2})",
       "gradient_predivide_factor: got 2"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 2}, "prescale_gradients": true})",
       "prescale_gradients: got true"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3}, "prescale_gradients": true})",
       "prescale_gradients: got true, expected false at stage 3"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})",
       "zero_optimization.offload_param.device: got \"cpu\" at stage 2, expected"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}})",
       "zero_optimization.offload_param.nvme_path: missing"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "offload_param": {"device": "nvme",
           "nvme_path": "/tmp", "buffer_count": 0}}})",
       "zero_optimization.offload_param.buffer_count: got 0"},
      {R"({"train_batch_size": 8, "aio": {"block_size": 5000}, "zero_optimization": {"stage": 3,
           "offload_param": {"device": "nvme", "nvme_path": "/tmp"}}})",
       "aio.block_size: got 5000 bytes with device \"nvme\", expected a multiple of 4096"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "zero_quantized_weights": true}})",
       "zero_optimization.zero_quantized_weights: not supported yet"},
      {R"({"train_batch_size": 8, "zero_optimization": {"offload_optimizer": {"ratio": 0.5}}})",
       "offload_optimizer.ratio: got 0.5 at stage 0"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}})",
       "offload_optimizer.ratio: got 0.5 at stage 2"},
      {R"({"train_batch_size": 8, "zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": "/tmp"}}})",
       "offload_optimizer.device: got \"nvme\" at stage 0, expected \"none\", or zero_optimization.stage 1, "
       "2 or 3"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}})",
       "offload_optimizer.nvme_path: missing, expected a folder"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3,
           "offload_optimizer": {"device": "nvme", "nvme_path": "/tmp", "buffer_count": 0}}})",
       "offload_optimizer.buffer_count: got 0 with device"},
      {R"({"train_batch_size": 8, "aio": {"block_size": 1000},
           "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/tmp"}}})",
       "aio.block_size: got 1000 bytes"},
      {R"({"train_batch_size": 8,
           "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu", "super_offload": true}}})",
       "super_offload: got true at stage 1, expected false, or stage 2 or 3"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3,
           "offload_optimizer": {"device": "nvme", "nvme_path": "/tmp", "super_offload": true}}})",
       "super_offload: got true with device \"nvme\", expected false, or device \"cpu\""},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3,
           "offload_param": {"device": "nvme", "nvme_path": "/tmp"},
           "offload_optimizer": {"device": "cpu", "super_offload": true}}})",
       "super_offload: got true with zero_optimization.offload_param.device \"nvme\""},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3}, "gradient_allreduce_op": "sum"})",
       "gradient_allreduce_op: got \"sum\" at stage 3"},
      {R"({"train_batch_size": 8, "managed_gradient_accumulation": false, "zero_optimization": {"overlap_comm": true}})",
       "managed_gradient_accumulation: got false beside zero_optimization.overlap_comm at stage 0"},
      {R"({"train_batch_size": 8, "bf16": {"split_master_weights": true}})",
       "bf16.split_master_weights: got true, expected bf16.enabled true"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 1},
           "bf16": {"enabled": true, "split_master_weights": true, "bf16_master_weights_and_grads": true,
                    "bf16_optimizer_states": true}})",
       "bf16.split_master_weights: got true beside bf16.bf16_master_weights_and_grads"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 1}, "fp16": {"fp16_master_weights_and_grads": true}})",
       "fp16.fp16_master_weights_and_grads: got true with zero_optimization.offload_optimizer.device "
       "\"none\""},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 2}, "bf16": {"bf16_master_weights_and_grads": true}})",
       "or bf16.bf16_optimizer_states true"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 2}, "bf16": {"bf16_master_weights_and_grads": true},
           "fp16": {"fp16_master_weights_and_grads": true}})",
       "fp16.fp16_master_weights_and_grads: got true beside bf16.bf16_master_weights_and_grads"},
      {R"({"train_batch_size": 8, "torch_autocast": {"enabled": true, "dtype": "float32"}})",
       "torch_autocast.dtype: got fp32, expected fp16 or bf16"},
      {R"({"train_batch_size": 8, "data_types": {"param_dtype": "half"}})",
       "data_types.param_dtype: got fp16"},
      {R"({"train_batch_size": 8, "fp32_allreduce": true, "communication_data_type": "fp16"})",
       "fp32_allreduce: got true beside communication_data_type \"fp16\""},
      {R"({"train_batch_size": 8, "amp": {"enabled": true}})",
       "amp.enabled: not supported, got true: Apex is a Python package; torch_autocast or fp16 takes its "
       "place"},
      {R"({"train_batch_size": 8, "data_parallel_size": 2})", "data_parallel_size: got 2, expected 1"},
      {R"({"train_batch_size": 8, "allgather_size": 4, "zero_optimization": {"stage": 1}})",
       "allgather_size: "},
  });
}

TEST(Config, TakesTwoOldKeysUnderTheirNewNames) {
  const auto config = load_config(R"({"train_batch_size": 8, "zero_optimization": {"stage": 1},
                                      "fp32_allreduce": true, "disable_allgather": true})",
                                  1);
  EXPECT_EQ(config.communication_data_type, "fp32");
  EXPECT_FALSE(config.zero_optimization.allgather_partitions);
  EXPECT_TRUE(load_config(R"({"train_batch_size": 8})", 1).zero_optimization.allgather_partitions);
}

TEST(Config, AcceptsWhatOnlyLooksLikeAContradiction) {
  for (
      const char* text : {
          R"({"train_batch_size": 8, "zero_optimization": {"stage": 2, "reduce_scatter": false}, "prescale_gradients": true})",
          R"({"train_batch_size": 8, "zero_optimization": {"stage": 1}, "gradient_predivide_factor": 2})",
          R"({"train_batch_size": 8, "zero_optimization": {"stage": 2}, "gradient_allreduce_op": "sum",
              "prescale_gradients": true})",
          R"({"train_batch_size": 8, "fp16": {"enabled": true, "loss_scale": 8, "loss_scale_window": 0}})",
          R"({"train_batch_size": 8, "amp": {"enabled": false, "opt_level": "O1"}, "fp16": {"enabled": true}})",
          R"({"train_batch_size": 8, "bf16": {"enabled": true}, "data_types": {"param_dtype": "torch.bfloat16"}})",
          R"({"train_batch_size": 8, "zero_optimization": {"stage": 2, "offload_optimizer": null, "zenflow": null,
              "leaf_module": null, "offload_param": {"device": "none"}}})",
          R"({"train_batch_size": 8, "zero_optimization": {"stage": 2, "stage3_prefetch_bucket_size": 1e6,
              "stage3_gather_16bit_weights_on_model_save": true, "leaf_module": {"names": "block"}}})",
          R"({"train_batch_size": 8, "flops_profiler": {"enabled": false, "profile_step": 5}})",
          R"({"train_batch_size": 8, "weight_quantization": {"enabled": false, "num_bits": 4}})",
      }) {
    EXPECT_EQ(load_error(text), "no error");
  }
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

TEST(Config, ReadsEverySectionIntoItsStruct) {
  const DeepSpeedConfig config = load_config(
      R"({"train_batch_size": 8, "torch_autocast": {"lower_precision_safe_modules": ["torch.nn.Linear"]},
          "tensorboard": {"output_path": "out"}, "comet": {"mode": "GET"}, "flops_profiler": {"profile_step": 7},
          "activation_checkpointing": {"number_checkpoints": null}, "aio": {"queue_depth": 32},
          "elasticity": {"micro_batch_sizes": [1, "2"]}, "autotuning": {"model_info": {"num_layers": 3}},
          "data_efficiency": {"data_routing": {"random_ltd": {"random_ltd_schedule": {"schedule_config": {"seq_per_step": 9}}}}},
          "compression_training": {"head_pruning": {"shared_parameters": {"num_heads": 12}}},
          "weight_quantization": {"enabled": false, "q_type": "asymmetric"}, "expert_parallel": {"top_k": 2},
          "progressive_layer_drop": {"enabled": false, "theta": 0.5},
          "zero_optimization": {"leaf_module": {"classes": "Block"}}})",
      1);
  EXPECT_EQ(config.torch_autocast.lower_precision_safe_modules, std::vector<std::string>{"torch.nn.Linear"});
  EXPECT_EQ(config.tensorboard.output_path, "out");
  EXPECT_EQ(config.csv_monitor.output_path, "");
  EXPECT_EQ(config.comet.mode, "get");
  EXPECT_EQ(config.flops_profiler.profile_step, 7);
  EXPECT_FALSE(config.activation_checkpointing.number_checkpoints.has_value());
  EXPECT_EQ(config.aio.queue_depth, 32);
  EXPECT_EQ(config.elasticity.micro_batch_sizes, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(config.autotuning.model_info->num_layers, 3);
  EXPECT_EQ(config.data_efficiency.data_routing.random_ltd.random_ltd_schedule.schedule_config.seq_per_step,
            9);
  EXPECT_EQ(config.compression_training.head_pruning.shared_parameters.num_heads, 12);
  EXPECT_EQ(config.weight_quantization->q_type, "asymmetric");
  EXPECT_EQ(config.expert_parallel.top_k, 2);
  EXPECT_EQ(config.progressive_layer_drop->theta, 0.5);
  EXPECT_EQ(config.zero_optimization.leaf_module.classes, std::vector<std::string>{"Block"});
  EXPECT_FALSE(config.amp || config.sparse_attention || config.zero_optimization.zenflow ||
               config.checkpoint.writer);
  EXPECT_EQ(to_json(load_config(to_json(config), 1)), to_json(config));
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

}  // namespace
}  // namespace deepspeed::config
