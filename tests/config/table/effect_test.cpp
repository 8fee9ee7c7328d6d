// No key is read and ignored: each one acts, is refused where it would have to, or says in the log that it
// does nothing.
#include <functional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/config/table/read.h"

#include "tests/config/load.h"
#include "tests/config/reference_keys.h"

namespace deepspeed::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Keys of which every value acts. A feature that comes adds its keys here, with tests of what they do beside
/// the feature.
const std::set<std::string> kActs = {
    "elasticity.enabled",
    "elasticity.ignore_non_elastic_batch_info",
    "elasticity.max_gpus",
    "elasticity.max_train_batch_size",
    "elasticity.micro_batch_sizes",
    "elasticity.min_gpus",
    "elasticity.model_parallel_size",
    "elasticity.num_gpus_per_node",
    "elasticity.prefer_larger_batch",
    "elasticity.version",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "managed_gradient_accumulation",
    "steps_per_print",
    "dump_state",
    "gradient_clipping",
    "prescale_gradients",
    "gradient_predivide_factor",
    "gradient_allreduce_op",
    "communication_data_type",
    "csv_monitor.enabled",
    "csv_monitor.job_name",
    "csv_monitor.output_path",
    "sparse_gradients",
    "disable_allgather",
    "fp32_allreduce",
    "wall_clock_breakdown",
    "memory_breakdown",
    "timers.throughput.enabled",
    "timers.throughput.synchronized",
    "zero_optimization.load_from_fp32_weights",
    "comms_logger.enabled",
    "comms_logger.verbose",
    "comms_logger.prof_all",
    "comms_logger.debug",
    "comms_logger.prof_ops",
    "zero_optimization.zero_quantized_gradients",
    "zero_allow_untested_optimizer",
    "dataloader_drop_last",
    "vocabulary_size",
    "log_level",
    "data_parallel_size",
    "seed",
    "allgather_size",
    "torch_autocast.enabled",
    "torch_autocast.dtype",
    "torch_autocast.lower_precision_safe_modules",
    "data_types.grad_accum_dtype",
    "data_types.buffer_dtype",
    "fp16.enabled",
    "fp16.loss_scale",
    "fp16.initial_scale_power",
    "fp16.loss_scale_window",
    "fp16.hysteresis",
    "fp16.consecutive_hysteresis",
    "fp16.min_loss_scale",
    "fp16.auto_cast",
    "fp16.fp16_master_weights_and_grads",
    "bf16.enabled",
    "bf16.check_grad_overflow",
    "bf16.immediate_grad_update",
    "bf16.bf16_master_weights_and_grads",
    "bf16.bf16_optimizer_states",
    "bf16.split_master_weights",
    "optimizer.type",
    "optimizer.params",
    "scheduler.type",
    "scheduler.params",
    "zero_optimization.stage",
    "zero_optimization.offload_param.device",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.reduce_scatter",
    "zero_optimization.use_multi_rank_bucket_allreduce",
    "zero_optimization.allgather_partitions",
    "zero_optimization.ignore_unused_parameters",
    "zero_optimization.reduce_bucket_size",
    "zero_optimization.allgather_bucket_size",
    "zero_optimization.overlap_comm",
    "zero_optimization.mics_shard_size",
    "zero_optimization.round_robin_gradients",
    "zero_optimization.offload_optimizer.device",
    "zero_optimization.legacy_stage1",  // its only value is no feature; the other one is refused
    "checkpoint.tag_validation",
    "checkpoint.keep_last",
    "checkpoint.writer.type",
    "checkpoint.writer.io_buffer_size",
    "checkpoint.writer.io_buffer_double",
    "checkpoint.writer.io_multiplier",
    "checkpoint.writer.show_statistics",
    "checkpoint.writer.decoupled",
    "checkpoint.load_universal",
    "activation_checkpointing.partition_activations",
    "activation_checkpointing.cpu_checkpointing",
    "activation_checkpointing.contiguous_memory_optimization",
    "activation_checkpointing.number_checkpoints",
    "activation_checkpointing.synchronize_checkpoint_boundary",
    "activation_checkpointing.profile",
    "progressive_layer_drop.enabled",
    "progressive_layer_drop.theta",
    "progressive_layer_drop.gamma",
    "cuda_graphs.enabled",
    "cuda_graphs.warmup_steps",
    "cuda_graphs.max_shapes",
    "pipeline.stages",
    "pipeline.partition",
    "pipeline.seed_layers",
    "pipeline.activation_checkpoint_interval",
    "pipeline.pipe_partitioned",
    "pipeline.grad_partitioned",
    "pipeline.use_reentrant",
    "pipeline.schedule",
    "pipeline.model_chunks",
    "data_types.param_dtype",  // holds the model's type against it
};

/// Sections without a switch of their own whose keys only another key's switch brings to life.
const std::set<std::string> kTechniques = {
    "compression_training.weight_quantization", "compression_training.activation_quantization",
    "compression_training.sparse_pruning",      "compression_training.row_pruning",
    "compression_training.head_pruning",        "compression_training.channel_pruning"};

/// Whether nothing in the section can act: it is refused itself, or its switch is.
bool cannot_be_switched_on(const Field& section, const std::string& path) {
  if (section.supported_values || kTechniques.count(path) != 0) return true;
  for (const Field& field : section.children) {
    const bool is_switch = field.key == "enabled" || field.key == "deepcompile";
    if (is_switch && field.supported_values) return true;
  }
  return false;
}

/// The keys that load in every value and do not say that they do nothing.
void collect_acting(const Field& section, const std::string& path, std::set<std::string>& acting) {
  for (const Field& field : section.children) {
    const std::string where = join(path, field.key);
    if (field.kind == Kind::kSection) {
      if (!cannot_be_switched_on(field, where)) collect_acting(field, where, acting);
    } else if (!field.supported_values && field.no_effect.empty() && !field.deprecation) {
      acting.insert(where);
    }
  }
}

TEST(Effect, IsHadByEveryKeyThatIsNeitherRefusedNorSaidToHaveNone) {
  std::set<std::string> acting;
  collect_acting(all_options(), "", acting);
  EXPECT_EQ(acting, kActs);
}

Json values_of(const Json& config) { return read_section(all_options(), config, ""); }

void walk(const Field& parent, const std::string& path,
          const std::function<void(const Field&, const std::string&)>& visit) {
  for (const Field& field : parent.children) {
    visit(field, join(path, field.key));
    walk(field, join(path, field.key), visit);
  }
}

TEST(Effect, IsReportedMissingIfAKeyHasNone) {
  int keys = 0;
  for (const ReferenceKey& key : reference().keys) {
    std::string why;
    walk(all_options(), "", [&](const Field& field, const std::string& path) {
      if (path == key.path()) why = field.no_effect;
    });
    if (why.empty()) continue;
    ++keys;
    const auto notes = [&](const Json& value) {
      return values_without_effect(all_options(), values_of(config_with(key.path(), value)), "");
    };
    EXPECT_THAT(notes(*key.default_value), ::testing::IsEmpty()) << key.path();
    bool noted = false;
    for (const Json& value : key.accepted()) {
      const auto found = notes(value);
      noted = noted || (found.size() == 1 && found[0] == key.path() + " (" + why + ")");
    }
    EXPECT_TRUE(noted) << key.path();
  }
  EXPECT_GT(keys, 30);
}

TEST(Effect, IsReportedMissingInOneLineOfTheLog) {
  const auto logged = [](const char* text) {
    log::set_level(log::Level::kWarning);
    ::testing::internal::CaptureStderr();
    load_config(text, 1);
    const std::string lines = ::testing::internal::GetCapturedStderr();
    log::set_level(log::Level::kError);
    return lines;
  };
  const std::string lines = logged(R"({"train_batch_size": 8, "aio": {"queue_depth": 64},
      "zero_optimization": {"stage": 2, "stage3_max_live_parameters": 5, "sub_group_size": 1e9}})");
  EXPECT_THAT(lines,
              HasSubstr("[config] without effect: zero_optimization.stage3_max_live_parameters (only stage "
                        "3 uses it), aio.queue_depth (only offloading to NVMe uses it)"));
  EXPECT_THAT(lines, Not(HasSubstr("sub_group_size")));
  EXPECT_EQ(logged(R"({"train_batch_size": 8, "zero_optimization": {"stage": 2}})"), "");
  EXPECT_EQ(logged(R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "sub_group_size": 5,
      "stage3_max_live_parameters": 5, "stage3_prefetch_bucket_size": 0}})"),
            "");
  EXPECT_EQ(logged(R"({"train_batch_size": 8, "aio": {"queue_depth": 64}, "zero_optimization": {"stage": 3,
      "offload_param": {"device": "nvme", "nvme_path": "/tmp", "buffer_size": 5, "pin_memory": false}}})"),
            "");
  EXPECT_THAT(
      logged(R"({"train_batch_size": 8, "aio": {"queue_depth": 64}, "zero_optimization": {"stage": 3,
      "offload_param": {"device": "cpu", "buffer_size": 5, "pin_memory": false}}})"),
      AllOf(HasSubstr("offload_param.buffer_size (only device nvme uses it)"),
            HasSubstr("aio.queue_depth (only offloading to NVMe uses it)"), Not(HasSubstr("pin_memory"))));
  EXPECT_THAT(logged(R"({"train_batch_size": 8, "zero_optimization": {"stage": 3,
      "memory_efficient_linear": false}})"),
              HasSubstr("zero_optimization.memory_efficient_linear (no layer of stage 3 keeps one)"));
  constexpr const char* kOnDisk = R"({"train_batch_size": 8, "aio": {"queue_depth": 64},
      "zero_force_ds_cpu_optimizer": false, "zero_optimization": {"stage": 2, "sub_group_size": 5,
      "offload_optimizer": {"device": "nvme", "nvme_path": "/tmp", "pipeline_read": true, "pin_memory": false,
      "buffer_count": 3}}})";
  EXPECT_EQ(logged(kOnDisk), "");
  EXPECT_THAT(
      logged(R"({"train_batch_size": 8, "zero_optimization": {"stage": 2, "offload_optimizer":
      {"device": "cpu", "pipeline_read": true, "fast_init": true}}})"),
      AllOf(HasSubstr("offload_optimizer.pipeline_read (only device nvme uses it)"),
            HasSubstr("offload_optimizer.fast_init (masters go to the disk one sub-group at a time")));
}

}  // namespace
}  // namespace deepspeed::config
