// Holds the rules between keys: one check_...() function for each group of keys that depend on each other.
//
// They run on a config with resolved batch sizes, after each single key's range was checked. Each rule is one
// require() with the key, its value, and what is expected instead. The first violated rule throws.
#include <string>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/text.h"
#include "deepspeed/config/config.h"
#include "deepspeed/config/table/named_type.h"

namespace deepspeed::config {
namespace {

template <class... Parts>
void require(bool condition, const Parts&... parts) {
  if (!condition) raise<ConfigError>(parts...);
}

void check_fp16(const Fp16Section& fp16) {
  if (!fp16.enabled || fp16.loss_scale != 0) return;
  require(fp16.loss_scale_window > 0, "fp16.loss_scale_window: got ", fp16.loss_scale_window,
          ", expected more than 0 for a dynamic loss scale");
  require(fp16.min_loss_scale > 0, "fp16.min_loss_scale: got ", fp16.min_loss_scale,
          ", expected more than 0 for a dynamic loss scale");
}

void check_sixteen_bit_masters(const DeepSpeedConfig& config) {
  const bool zero = config.zero_optimization.stage > 0;
  const bool fp16_masters = config.fp16.fp16_master_weights_and_grads;
  const bool bf16_masters = config.bf16.bf16_master_weights_and_grads;
  require(!fp16_masters || !bf16_masters, "fp16.fp16_master_weights_and_grads: got true beside ",
          "bf16.bf16_master_weights_and_grads, expected one of them");
  require(!fp16_masters || zero, "fp16.fp16_master_weights_and_grads: got true at stage 0, ",
          "expected zero_optimization.stage 1, 2 or 3");
  require(!bf16_masters || zero, "bf16.bf16_master_weights_and_grads: got true at stage 0, ",
          "expected zero_optimization.stage 1, 2 or 3");
  require(!config.bf16.bf16_optimizer_states || (zero && bf16_masters),
          "bf16.bf16_optimizer_states: got true, ",
          "expected it with bf16.bf16_master_weights_and_grads and zero_optimization.stage 1, 2 or 3");
  const std::string sums = config.data_types.grad_accum_dtype.value_or(fp16_masters ? "fp16" : "bf16");
  require((!fp16_masters && !bf16_masters) || sums != "fp32", "data_types.grad_accum_dtype: got fp32 beside ",
          "gradients in 16 bits, which ", fp16_masters ? "fp16.fp16" : "bf16.bf16",
          "_master_weights_and_grads asks for");
  // The step on the host keeps its moments in float32. On a device 16-bit masters need bf16_optimizer_states.
  const bool on_host = config.zero_optimization.offload_optimizer.device != "none";
  require(!fp16_masters || on_host, "fp16.fp16_master_weights_and_grads: got true with ",
          "zero_optimization.offload_optimizer.device \"none\", expected \"cpu\" or \"nvme\" there");
  require(!bf16_masters || on_host || config.bf16.bf16_optimizer_states,
          "bf16.bf16_master_weights_and_grads: got true with ",
          "zero_optimization.offload_optimizer.device \"none\", expected \"cpu\" or \"nvme\" there, or ",
          "bf16.bf16_optimizer_states true");
  require(!fp16_masters || config.fp16.enabled, "fp16.fp16_master_weights_and_grads: got true, ",
          "expected fp16.enabled true beside it");
  require(!bf16_masters || config.bf16.enabled, "bf16.bf16_master_weights_and_grads: got true, ",
          "expected bf16.enabled true beside it");
}

void check_split_masters(const Bf16Config& bf16) {
  if (!bf16.split_master_weights) return;
  require(bf16.enabled, "bf16.split_master_weights: got true, expected bf16.enabled true beside it");
  require(!bf16.bf16_master_weights_and_grads, "bf16.split_master_weights: got true beside ",
          "bf16.bf16_master_weights_and_grads, which keeps no float32 masters, expected one of them");
}

void check_immediate_update(const DeepSpeedConfig& config) {
  if (!config.bf16.enabled || !config.bf16.immediate_grad_update) return;
  const std::string sums = config.data_types.grad_accum_dtype.value_or("fp32");
  require(sums == "fp32" && !config.bf16.bf16_master_weights_and_grads,
          "bf16.immediate_grad_update: got true beside gradients summed in 16 bits, expected fp32 in ",
          "data_types.grad_accum_dtype, and bf16.bf16_master_weights_and_grads false");
}

void check_quantized_gathers(const ZeroConfig& zero) {
  const auto exclude = [&](bool is_quantized, const char* key) {
    require(!is_quantized || !zero.stage3_use_all_reduce_for_fetch_params, "zero_optimization.", key,
            ": got true beside stage3_use_all_reduce_for_fetch_params, which adds up the bits of values as "
            "they are, ",
            "expected one of them");
  };
  exclude(zero.zero_quantized_weights, "zero_quantized_weights");
  exclude(zero.zero_quantized_nontrainable_weights, "zero_quantized_nontrainable_weights");
  require(zero.zero_quantized_weights_dtype == "int8" || zero.zero_quantized_weights ||
              zero.zero_quantized_nontrainable_weights,
          "zero_optimization.zero_quantized_weights_dtype: got ", zero.zero_quantized_weights_dtype,
          " while no parameters are quantized; set zero_quantized_weights or ",
          "zero_quantized_nontrainable_weights to true");
}

void check_quantized_gradients(const ZeroConfig& zero) {
  constexpr const char* kKey = "zero_optimization.zero_quantized_gradients";
  if (!zero.zero_quantized_gradients) return;
  require(zero.stage == 3, kKey, ": got true at stage ", zero.stage, ", expected stage 3");
  require(zero.reduce_scatter, kKey, ": got true beside zero_optimization.reduce_scatter false, ",
          "expected that to be true: each rank gets its own part of the sums alone");
}

void check_mics(const ZeroConfig& zero) {
  const auto require_without = [&](bool is_alone, const char* key, const auto&... parts) {
    require(zero.mics_shard_size <= 0 || is_alone, "zero_optimization.mics_shard_size: got ",
            zero.mics_shard_size, key, parts...);
  };
  require_without(zero.stage == 3, " at stage ", zero.stage, ", expected -1, or stage 3");
  require_without(zero.zero_hpz_partition_size <= 1, " beside zero_hpz_partition_size ",
                  zero.zero_hpz_partition_size,
                  ", expected one of them: parameters are gathered among few ranks already; leave "
                  "zero_hpz_partition_size out");
  require_without(!zero.zero_quantized_gradients, " beside zero_quantized_gradients",
                  ", which sums over all nodes at once; set one of them to its default");
  require_without(!zero.offload_optimizer.super_offload, " beside offload_optimizer.super_offload",
                  ", which steps while backward runs, before all replicas have added their gradients; set "
                  "one of them to its default");
  require(!zero.mics_hierarchical_params_gather || !zero.stage3_use_all_reduce_for_fetch_params,
          "zero_optimization.mics_hierarchical_params_gather: got true beside "
          "stage3_use_all_reduce_for_fetch_params, expected one of them: they are two ways to gather");
}

void check_autocast(const TorchAutocastConfig& autocast) {
  require(!autocast.enabled || autocast.dtype != "fp32",
          "torch_autocast.dtype: got fp32, expected fp16 or bf16: it is the lower precision");
}

void check_precision(const DeepSpeedConfig& config) {
  const bool fp16 = config.fp16.enabled;
  const bool bf16 = config.bf16.enabled;
  require(!fp16 || !bf16, "bf16.enabled: got true beside fp16.enabled, expected one of them");
  check_fp16(config.fp16);
  check_sixteen_bit_masters(config);
  check_split_masters(config.bf16);
  check_immediate_update(config);
  check_autocast(config.torch_autocast);
  check_quantized_gathers(config.zero_optimization);
  check_quantized_gradients(config.zero_optimization);
}

void check_param_dtype(const DeepSpeedConfig& config) {
  const auto& wanted = config.data_types.param_dtype;
  const std::string model = config.fp16.enabled ? "fp16" : config.bf16.enabled ? "bf16" : "fp32";
  require(!wanted || *wanted == model, "data_types.param_dtype: got ", wanted.value_or(""), ", expected ",
          model, ", the type that fp16.enabled and bf16.enabled give the model");
}

/// Refuses "auto" for values that only the client can choose.
void check_params(const char* path, const Json& params) {
  for (const auto& [key, value] : params.items()) {
    require(value != "auto", path, ".", path_part(key),
            ": got \"auto\", expected a value: the client must resolve it before the config is loaded");
  }
}

/// Checks the rules for an optimizer whose ranks exchange 1 bit per element.
void check_exchange(const DeepSpeedConfig& config, int64_t last_stage) {
  const std::string& type = config.optimizer->type;
  const ZeroConfig& zero = config.zero_optimization;
  require(zero.stage <= last_stage, "zero_optimization.stage: got ", zero.stage, " with optimizer.type \"",
          type, "\", expected ",
          last_stage > 0 ? "0 or 1" : "0: between two exchanges each rank steps all parameters by itself");
  require(config.gradient_clipping == 0.0, "gradient_clipping: got ", config.gradient_clipping,
          " with optimizer.type \"", type,
          "\", expected 0: ranks exchange other values than gradients, whose norm is not that of gradients");
  require(zero.offload_optimizer.device == "none", "zero_optimization.offload_optimizer.device: got \"",
          zero.offload_optimizer.device, "\" with optimizer.type \"", type, "\", expected \"none\"");
  require(
      !config.bf16.enabled || config.bf16.check_grad_overflow,
      "bf16.check_grad_overflow: got false with optimizer.type \"", type,
      "\", expected true: what compression takes from a value that is not finite comes back in all steps");
  require(config.gradient_allreduce_op != "sum", "gradient_allreduce_op: got \"sum\" with optimizer.type \"",
          type, "\", expected \"mean\"");
}

void check_optimizer(const DeepSpeedConfig& config) {
  if (config.scheduler) check_params("scheduler.params", config.scheduler->params);
  if (!config.optimizer) return;
  const Json& params = config.optimizer->params;
  check_params("optimizer.params", params);
  require(!params.contains("lr") || !params["lr"].is_null(),
          "optimizer.params.lr: got null, expected a number; without the key the optimizer's default holds");
  require(!params.contains("max_grad_norm"), "optimizer.params.max_grad_norm: got ",
          json_excerpt(params.value("max_grad_norm", Json())),
          ", expected the key gradient_clipping in its place");
  const std::string type = lowercase(config.optimizer->type);
  const bool is_lamb = type == "lamb" || type == "onebitlamb";
  require(!is_lamb || !config.fp16.enabled || config.fp16.loss_scale == 0, "fp16.loss_scale: got ",
          config.fp16.loss_scale, ", expected 0: ", config.optimizer->type, " needs a dynamic loss scale");
  const NamedType* const one_bit = find_one_bit_optimizer(type);
  if (one_bit != nullptr) check_exchange(config, one_bit->last_stage);
}

void check_zero(const DeepSpeedConfig& config) {
  const ZeroConfig& zero = config.zero_optimization;
  const bool sharded_in_place = zero.stage == 1 || zero.stage == 2;
  require(!sharded_in_place || zero.allgather_bucket_size % 2 == 0,
          "zero_optimization.allgather_bucket_size: got ", zero.allgather_bucket_size,
          ", expected an even number: allgather_bucket_size must be a multiple of "
          "nccl_start_alignment_factor, which is 2");
  require(zero.offload_optimizer.ratio == 1.0 || zero.stage == 3,
          "zero_optimization.offload_optimizer.ratio: got ", zero.offload_optimizer.ratio, " at stage ",
          zero.stage, ", expected 1.0: less needs stage 3");
  const bool means_by_scatter =
      zero.stage >= 2 && zero.reduce_scatter && config.gradient_allreduce_op == "mean";
  require(!means_by_scatter || config.gradient_predivide_factor == 1.0, "gradient_predivide_factor: got ",
          config.gradient_predivide_factor, ", expected 1.0 at stage ", zero.stage,
          " with reduce_scatter and the mean");
  require(!means_by_scatter || !config.prescale_gradients,
          "prescale_gradients: got true, expected false at stage ", zero.stage,
          " with reduce_scatter and the mean");
}

/// Checks what an offload to a disk needs. `block` is its section's key; `contents` says what the disk holds.
void check_disk(const auto& offload, const char* block, const char* contents) {
  if (offload.device != "nvme") return;
  require(offload.nvme_path && !offload.nvme_path->empty(), "zero_optimization.", block,
          ".nvme_path: missing, expected a folder on the disk that device \"nvme\" is for");
  require(offload.buffer_count > 0, "zero_optimization.", block, ".buffer_count: got 0 with device ",
          "\"nvme\", expected at least 1: ", contents, " pass through these buffers");
}

void check_offloaded_optimizer(const ZeroConfig& zero) {
  const OffloadOptimizerConfig& offload = zero.offload_optimizer;
  if (offload.device == "none") return;
  constexpr const char* kDevice = "zero_optimization.offload_optimizer.device: got \"";
  require(zero.stage > 0, kDevice, offload.device, "\" at stage 0, expected \"none\", or ",
          "zero_optimization.stage 1, 2 or 3");
  constexpr const char* kSuper = "zero_optimization.offload_optimizer.super_offload: got true ";
  require(!offload.super_offload || zero.stage >= 2, kSuper, "at stage ", zero.stage,
          ", expected false, or stage 2 or 3, which reduce gradients during backward");
  require(!offload.super_offload || offload.device == "cpu", kSuper, "with device \"", offload.device,
          "\", expected false, or device \"cpu\"");
  require(!offload.super_offload || zero.offload_param.device != "nvme", kSuper,
          "with zero_optimization.offload_param.device \"nvme\", expected false, or \"cpu\" or \"none\"");
  check_disk(offload, "offload_optimizer", "masters and states");
}

void check_offloaded_params(const ZeroConfig& zero) {
  const OffloadParamConfig& offload = zero.offload_param;
  if (offload.device == "none") return;
  require(zero.stage == 3, "zero_optimization.offload_param.device: got \"", offload.device, "\" at stage ",
          zero.stage, ", expected \"none\", or zero_optimization.stage 3, which partitions parameters");
  check_disk(offload, "offload_param", "parameters");
}

/// Checks the block size for a disk: writes past the page cache go in whole blocks of the disk.
void check_aio(const DeepSpeedConfig& config) {
  const ZeroConfig& zero = config.zero_optimization;
  if (zero.offload_param.device != "nvme" && zero.offload_optimizer.device != "nvme") return;
  constexpr int64_t kDiskBlock = 4096;  // equals io::kDirectAlignment
  require(config.aio.block_size % kDiskBlock == 0, "aio.block_size: got ", config.aio.block_size,
          " bytes with device \"nvme\", expected a multiple of ", kDiskBlock);
}

void check_sum_of_gradients(const DeepSpeedConfig& config) {
  if (config.gradient_allreduce_op != "sum") return;
  constexpr const char* kSum = "gradient_allreduce_op: got \"sum\" ";
  const ZeroConfig& zero = config.zero_optimization;
  require(zero.stage != 3, kSum, "at stage 3, expected \"mean\", or stage 0, 1 or 2: a sum is not ",
          "supported with ZeRO stage 3");
  require(zero.zenflow.is_null(), kSum, "beside zero_optimization.zenflow, expected \"mean\": a sum is not ",
          "supported with ZenFlow");
  require(!config.compile.value("deepcompile", false), kSum,
          "beside compile.deepcompile, expected \"mean\": a sum is not ", "supported with DeepCompile");
}

/// Refuses keys that reduce gradients early if the caller decides when a step ends.
void check_unmanaged_accumulation(const DeepSpeedConfig& config) {
  if (config.managed_gradient_accumulation) return;
  const ZeroConfig& zero = config.zero_optimization;
  require(zero.stage > 1 || !zero.overlap_comm.value_or(false),
          "managed_gradient_accumulation: got false beside zero_optimization.overlap_comm at stage ",
          zero.stage, ", expected that to be false: false supports ZeRO overlap_comm only with ZeRO stage 2");
}

void check_activation_checkpointing(const ActivationCheckpointingConfig& section) {
  require(!section.contiguous_memory_optimization || section.partition_activations,
          "activation_checkpointing.contiguous_memory_optimization: got true beside partition_activations ",
          "false, expected that to be true: Contiguous Checkpointing is only available with partitioned ",
          "activations");
}

void check_pipeline(const PipelineConfig& pipeline) {
  const std::string method = lowercase(pipeline.partition);
  const bool is_known = method == "best" || method == "uniform" || method == "parameters" ||
                        method == "profile" || method.starts_with("type:");
  require(is_known, "pipeline.partition: got \"", pipeline.partition,
          "\", expected \"best\", \"uniform\", \"parameters\", \"profile\" or \"type:REGEX\"");
  const bool is_interleaved = pipeline.schedule == "interleaved";
  require(!is_interleaved || pipeline.model_chunks > 1,
          "pipeline.model_chunks: got 1 beside pipeline.schedule \"interleaved\", expected 2 or more, the ",
          "model_chunks that the PipelineModule was given: the config and the module both say it");
  require(is_interleaved || pipeline.model_chunks == 1, "pipeline.model_chunks: got ", pipeline.model_chunks,
          " beside pipeline.schedule \"", pipeline.schedule,
          "\", expected 1, or pipeline.schedule \"interleaved\"");
}

// A graph replays the same work at the same addresses every time.
void check_cuda_graphs(const DeepSpeedConfig& config) {
  if (!config.cuda_graphs.enabled) return;
  const int64_t stage = config.zero_optimization.stage;
  const auto require_without = [](bool is_on, const auto&... what) {
    require(!is_on, "cuda_graphs.enabled: got true ", what...);
  };
  require_without(stage == 3, "at stage 3, which gathers each weight to another address, expected false, or ",
                  "zero_optimization.stage 0, 1 or 2");
  require_without(config.sparse_gradients, "beside sparse_gradients, whose sizes only the device knows, ",
                  "expected one of them");
  require_without(
      config.progressive_layer_drop && config.progressive_layer_drop->enabled,
      "beside progressive_layer_drop.enabled, which runs other layers in each step, expected one ",
      "of them");
}

void check_world(const DeepSpeedConfig& config, int64_t world) {
  require(!config.data_parallel_size || *config.data_parallel_size == world, "data_parallel_size: got ",
          config.data_parallel_size.value_or(0), ", expected ", world, ", the number of data-parallel ranks");
  const int64_t secondary = config.zero_optimization.zero_hpz_partition_size;
  require(secondary <= 1 || world % secondary == 0, "zero_optimization.zero_hpz_partition_size: got ",
          secondary, ", expected a divisor of ", world,
          ", the number of data-parallel ranks; 1 switches it off");
  const int64_t shards = config.zero_optimization.mics_shard_size;
  require(shards <= 0 || world % shards == 0, "zero_optimization.mics_shard_size: got ", shards,
          ", expected a divisor of ", world, ", the number of data-parallel ranks");
}

}  // namespace

void require_consistent(const DeepSpeedConfig& config, int64_t data_parallel_world_size) {
  check_precision(config);
  check_param_dtype(config);
  check_optimizer(config);
  check_zero(config);
  check_offloaded_optimizer(config.zero_optimization);
  check_offloaded_params(config.zero_optimization);
  check_mics(config.zero_optimization);
  check_aio(config);
  check_sum_of_gradients(config);
  check_unmanaged_accumulation(config);
  check_activation_checkpointing(config.activation_checkpointing);
  check_pipeline(config.pipeline);
  check_cuda_graphs(config);
  check_world(config, data_parallel_world_size);
}

}  // namespace deepspeed::config
