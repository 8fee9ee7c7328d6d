// What a config is refused for, and what only looks like it: each error names the key and what is expected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/config/config.h"

#include "tests/config/load.h"

namespace deepspeed::config {
namespace {

using ::testing::HasSubstr;

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
      {R"({"train_batch_size": 8, "gradient_allreduce_op": "max"})",
       "expected one of mean, sum: Invalid gradient_allreduce_op"},
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

TEST(Config, RefusesPipelinesWhoseKeysContradictEachOther) {
  expect_refused({
      {R"({"train_batch_size": 8, "pipeline": {"stages": 0}})", "pipeline.stages: got 0, expected a whole"},
      {R"({"train_batch_size": 8, "pipeline": {"schedule": "gpipe"}})",
       "expected one of 1f1b, interleaved, zero_bubble"},
      {R"({"train_batch_size": 8, "pipeline": {"partition": "even"}})",
       "pipeline.partition: got \"even\", expected \"best\""},
      {R"({"train_batch_size": 8, "pipeline": {"schedule": "interleaved"}})",
       "pipeline.model_chunks: got 1 beside pipeline.schedule \"interleaved\", expected 2 or more, the "
       "model_chunks that the PipelineModule was given: the config and the module both say it"},
      {R"({"train_batch_size": 8, "pipeline": {"model_chunks": 2}})",
       "pipeline.model_chunks: got 2 beside pipeline.schedule \"1f1b\", expected 1"},
      {R"({"train_batch_size": 8, "pipeline": {"activation_checkpoint_interval": -1}})",
       "expected a whole number of at least 0"},
      {R"({"train_batch_size": 8, "activation_checkpointing": {"contiguous_memory_optimization": true}})",
       "activation_checkpointing.contiguous_memory_optimization: got true beside partition_activations"},
      {R"({"train_batch_size": 8, "activation_checkpointing": {"number_checkpoints": 0}})",
       "activation_checkpointing.number_checkpoints: got 0, expected a whole number of at least 1"},
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

TEST(Config, SuggestsTheObjectIfASectionIsGivenAsOneValue) {
  expect_refused({
      {R"({"train_batch_size": 8, "fp16": true})",
       "fp16: got true, expected an object; did you mean {\"enabled\":true}?"},
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
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "zero_quantized_weights_dtype": "fp8"}})",
       "zero_optimization.zero_quantized_weights_dtype: got fp8 while no parameters are quantized"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 2, "zero_quantized_gradients": true}})",
       "zero_optimization.zero_quantized_gradients: got true at stage 2, expected stage 3"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "zero_quantized_gradients": true,
           "reduce_scatter": false}})",
       "zero_quantized_gradients: got true beside zero_optimization.reduce_scatter false"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "zero_quantized_weights": true,
           "stage3_use_all_reduce_for_fetch_params": true}})",
       "zero_optimization.zero_quantized_weights: got true beside stage3_use_all_reduce_for_fetch_params"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 2, "mics_shard_size": 1}})",
       "zero_optimization.mics_shard_size: got 1 at stage 2, expected -1, or stage 3"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2}})",
       "zero_optimization.zero_hpz_partition_size: got 2, expected a divisor of 1, the number of "
       "data-parallel ranks; 1 switches it off"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "mics_shard_size": 2}})",
       "zero_optimization.mics_shard_size: got 2, expected a divisor of 1"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "mics_shard_size": 1, "zero_hpz_partition_size": 4}})",
       "zero_optimization.mics_shard_size: got 1 beside zero_hpz_partition_size 4"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "mics_shard_size": 1, "zero_quantized_gradients": true}})",
       "zero_optimization.mics_shard_size: got 1 beside zero_quantized_gradients"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "mics_shard_size": 1,
           "offload_optimizer": {"device": "cpu", "super_offload": true}}})",
       "zero_optimization.mics_shard_size: got 1 beside offload_optimizer.super_offload"},
      {R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "mics_hierarchical_params_gather": true,
           "stage3_use_all_reduce_for_fetch_params": true}})",
       "mics_hierarchical_params_gather: got true beside stage3_use_all_reduce_for_fetch_params"},
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
      {R"({"train_batch_size": 8, "cuda_graphs": {"enabled": true}, "zero_optimization": {"stage": 3}})",
       "cuda_graphs.enabled: got true at stage 3"},
      {R"({"train_batch_size": 8, "cuda_graphs": {"enabled": true}, "sparse_gradients": true})",
       "cuda_graphs.enabled: got true beside sparse_gradients"},
      {R"({"train_batch_size": 8, "cuda_graphs": {"enabled": true}, "progressive_layer_drop": {"enabled": true}})",
       "cuda_graphs.enabled: got true beside progressive_layer_drop.enabled"},
      {R"({"train_batch_size": 8, "cuda_graphs": {"enabled": true, "max_shapes": 0}})",
       "cuda_graphs.max_shapes: got 0, expected"},
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
}  // namespace
}  // namespace deepspeed::config
