// The getters of the config on the engine, each with its value.
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <torch/optim/sgd.h>

#include "tests/engine/method_table.h"
#include "tests/support/error_of.h"

namespace deepspeed {
namespace {

using testing::kMethodsConfig;
using testing::make_engine;
using testing::MethodRow;
using testing::TestEngine;

template <class Result, class Class, class Expected>
MethodRow gives(const char* method, Result (Class::*getter)() const, Expected expected) {
  return {method, [=](TestEngine& engine) { EXPECT_EQ((engine.*getter)(), expected); }};
}

const std::vector<MethodRow> kGetters = {
#define ROW(method, expected) gives(#method, &TestEngine::method, expected)
    ROW(train_batch_size, 8),
    ROW(train_micro_batch_size_per_gpu, 4),
    ROW(gradient_accumulation_steps, 2),
    ROW(steps_per_print, std::optional<int64_t>(50)),
    ROW(dataloader_drop_last, true),
    ROW(dump_state, false),
    ROW(wall_clock_breakdown, false),
    ROW(memory_breakdown, false),
    ROW(graph_harvesting, false),
    ROW(gradient_clipping, 0.5),
    ROW(prescale_gradients, true),
    ROW(postscale_gradients, false),
    ROW(gradient_predivide_factor, 1.0),
    ROW(gradient_allreduce_op, "mean"),
    ROW(sparse_gradients_enabled, false),
    ROW(fp32_allreduce, false),
    ROW(communication_data_type, std::optional<std::string>("fp32")),
    ROW(fp16_enabled, false),
    ROW(fp16_auto_cast, false),
    ROW(fp16_master_weights_and_gradients, false),
    ROW(bfloat16_enabled, false),
    ROW(amp_enabled, false),
    ROW(amp_params, Json()),
    ROW(bf16_master_weights_and_gradients, false),
    ROW(bf16_optimizer_states, false),
    ROW(bf16_split_master_weights, false),
    ROW(dynamic_loss_scale_args, Json()),
    ROW(log_level, std::nullopt),
    ROW(dynamic_loss_scale, false),
    ROW(initial_dynamic_scale, 65536.0),
    ROW(optimizer_name, std::optional<std::string>("adamw")),
    ROW(optimizer_params, Json::parse(R"({"lr": 0.01, "betas": [0.8, 0.95]})")),
    ROW(optimizer_legacy_fusion, false),
    ROW(scheduler_name, std::optional<std::string>("WarmupLR")),
    ROW(scheduler_params, Json::parse(R"({"warmup_num_steps": 10})")),
    ROW(zero_optimization_stage, 1),
    ROW(zero_optimization, true),
    ROW(zero_optimization_partition_gradients, false),
    ROW(zero_optimization_partition_weights, false),
    ROW(zero_allow_untested_optimizer, true),
    ROW(zero_force_ds_cpu_optimizer, true),
    ROW(zero_reduce_scatter, false),
    ROW(zero_overlap_comm, true),
    ROW(zero_reduce_bucket_size, 1000),
    ROW(zero_multi_rank_bucket_allreduce, false),
    ROW(zero_allgather_partitions, false),
    ROW(zero_allgather_bucket_size, 2000),
    ROW(zero_contiguous_gradients, false),
    ROW(zero_round_robin_gradients, true),
    ROW(zero_ignore_unused_parameters, true),
    ROW(zero_legacy_stage1, false),
    ROW(zero_load_from_fp32_weights, true),
    ROW(zero_elastic_checkpoint, false),
    ROW(zero_allgather_sequential, false),
    ROW(zero_log_trace_cache_warnings, false),
    ROW(zero_save_muon_momentum_buffer_in_memory, false),
    ROW(is_sanity_checks_enabled, false),
    ROW(super_offload, false),
    ROW(cpuadam_cores_perc, 0.8),
    ROW(zero_cpu_offload, false),
    ROW(zero_use_cpu_optimizer, false),
    ROW(zero_nvme_offload_optimizer, false),
    ROW(zero_partial_offload, 1.0),
    ROW(zero_sub_group_size, 1'000'000'000),
    ROW(zero_prefetch_bucket_size, 50'000'000),
    ROW(zero_param_persistence_threshold, 100'000),
    ROW(zero_model_persistence_threshold, std::numeric_limits<int64_t>::max()),
    ROW(zero_max_live_parameters, 1'000'000'000),
    ROW(zero_max_reuse_distance, 1'000'000'000),
    ROW(zero_module_granularity_threshold, 0),
    ROW(zero_gather_16bit_weights_on_model_save, false),
    ROW(zero_hpz_partition_size, 1),
    ROW(zero_quantized_weights, false),
    ROW(zero_quantized_gradients, false),
    ROW(zero_quantized_nontrainable_weights, false),
    ROW(mics_shard_size, -1),
    ROW(checkpoint_tag_validation_enabled, true),
    ROW(checkpoint_tag_validation_fail, true),
    ROW(load_universal_checkpoint, false),
    ROW(use_node_local_storage, false),
    ROW(checkpoint_serialization_enabled, true),
    ROW(checkpoint_writer_enabled, false),
    ROW(monitor_enabled, false),
    ROW(flops_profiler_enabled, false),
    ROW(flops_profiler_recompute_fwd_factor, 0.0),
    ROW(flops_profiler_profile_step, 1),
    ROW(flops_profiler_module_depth, -1),
    ROW(flops_profiler_top_modules, 1),
    ROW(flops_profiler_detailed, true),
    ROW(flops_profiler_output_file, std::nullopt),
    ROW(autotuning_enabled, false),
    ROW(autotuning_start_profile_step, 3),
    ROW(autotuning_end_profile_step, 5),
    ROW(autotuning_metric, "throughput"),
    ROW(autotuning_metric_path, "autotuning_metric.json"),
    ROW(autotuning_model_info_path, "autotuning_model_info.json"),
    ROW(autotuning_profile_model_info, false),
    ROW(elasticity_enabled, false),
    ROW(eigenvalue_enabled, false),
    ROW(eigenvalue_verbose, false),
    ROW(eigenvalue_max_iter, 100),
    ROW(eigenvalue_tol, 1e-2),
    ROW(eigenvalue_stability, 1e-6),
    ROW(eigenvalue_gas_boundary_resolution, 1),
    ROW(eigenvalue_layer_name, "bert.encoder.layer"),
    ROW(eigenvalue_layer_num, 0),
    ROW(pld_enabled, false),
    ROW(pld_theta, 1.0),
    ROW(pld_gamma, 0.001),
    ROW(get_pld_theta, std::nullopt),
    ROW(curriculum_enabled_legacy, false),
    ROW(data_efficiency_enabled, false),
    ROW(data_sampling_enabled, false),
    ROW(curriculum_learning_enabled, false),
    ROW(autotp_size, 0),
    ROW(random_ltd_enabled, false),
    ROW(quantize_training, false),
    ROW(deepcompile_enabled, false),
    ROW(torch_autocast_enabled, false),
    ROW(get_batch_info, std::make_tuple(8, 4, 2)),
    ROW(get_lr, std::vector<double>{0.0}),
    ROW(get_mom, (std::vector<std::pair<double, double>>{{0.8, 0.95}})),
    ROW(get_type, std::vector<std::string>{""}),
    ROW(get_compile_time, 0.0),
    ROW(get_global_grad_norm, std::nullopt),
    ROW(loss_scale, 1.0),
    ROW(rank, 0),
    ROW(dp_world_size, 1),
    ROW(broadcast_src_rank, 0),
    ROW(get_data_parallel_rank, 0),
    ROW(get_model_parallel_rank, 0),
    ROW(get_tensor_parallel_rank, 0),
    ROW(get_wall_clock_timers, (std::map<std::string, double>())),
    ROW(preemption_requested, false),
    ROW(device, at::Device(at::kCPU)),
#undef ROW
    {"zero_offload_optimizer", [](TestEngine& e) { EXPECT_EQ(e.zero_offload_optimizer().device, "none"); }},
    {"zero_offload_param", [](TestEngine& e) { EXPECT_EQ(e.zero_offload_param().device, "none"); }},
    {"pld_params", [](TestEngine& e) { EXPECT_FALSE(e.pld_params()); }},
    {"data_efficiency_config", [](TestEngine& e) { EXPECT_EQ(e.data_efficiency_config().seed, 1234); }},
    {"data_sampling_config", [](TestEngine& e) { EXPECT_EQ(e.data_sampling_config().num_epochs, 1000); }},
    {"curriculum_learning_config",
     [](TestEngine& e) { EXPECT_FALSE(e.curriculum_learning_config().curriculum_metrics); }},
    {"curriculum_params_legacy",
     [](TestEngine& e) { EXPECT_FALSE(e.curriculum_params_legacy().curriculum_type); }},
    {"random_ltd_config", [](TestEngine& e) { EXPECT_FALSE(e.random_ltd_config().model_type); }},
    {"tensor_parallel_config",
     [](TestEngine& e) { EXPECT_EQ(e.tensor_parallel_config().dtype, "torch.float16"); }},
    {"aio_config", [](TestEngine& e) { EXPECT_EQ(e.aio_config().queue_depth, 8); }},
    {"torch_autocast_dtype", [](TestEngine& e) { EXPECT_ERROR(UsageError, e.torch_autocast_dtype(), "torch_autocast_dtype(): torch_autocast.enabled is false"); }},
    {"config", [](TestEngine& e) { EXPECT_EQ(e.config().raw, kMethodsConfig); }},
};

TEST(EngineGetters, GiveTheConfigsValues) {
  EXPECT_GT(kGetters.size(), 100U);
  testing::check_each(kGetters);
}

// The getters follow the config: with other values they give others.
TEST(EngineGetters, FollowTheConfig) {
  const Json other = {{"train_batch_size", 4},
                      {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.1}, {"momentum", 0.9}}}}},
                      {"fp16", {{"enabled", true}, {"initial_scale_power", 4}}},
                      {"checkpoint", {{"tag_validation", "Ignore"}}},
                      {"zero_allow_untested_optimizer", true},
                      {"zero_optimization", {{"stage", 2}}}};
  const auto engine = make_engine(other);
  EXPECT_TRUE(engine->fp16_enabled());
  EXPECT_TRUE(engine->dynamic_loss_scale());
  EXPECT_EQ(engine->initial_dynamic_scale(), 16.0);
  EXPECT_EQ(engine->dynamic_loss_scale_args(),
            Json::parse(R"({"init_scale": 16.0, "scale_window": 1000, "min_scale": 1, "delayed_shift": 2,
                            "consecutive_hysteresis": false})"));
  EXPECT_EQ(engine->loss_scale(), 16.0);
  EXPECT_TRUE(engine->zero_optimization_partition_gradients());
  EXPECT_FALSE(engine->zero_overlap_comm());
  EXPECT_FALSE(engine->checkpoint_tag_validation_enabled());
  EXPECT_EQ(engine->optimizer_name(), "SGD");
  EXPECT_EQ(engine->scheduler_name(), std::nullopt);
  EXPECT_TRUE(engine->scheduler_params().is_null());
  EXPECT_EQ(engine->get_mom()[0].first, 0.9);
}

TEST(EngineGetters, TheOptimizersNameIsTheClassOfTheProgramsOwn) {
  const auto name = [](const OptimizerSource& optimizer) {
    const auto model = std::make_shared<testing::OddNet>();
    return initialize(model, {.config = testing::basic(), .optimizer = optimizer}).engine->optimizer_name();
  };
  EXPECT_EQ(name(nullptr), "adamw");  // as DeepSpeed spells the types that it reads in any case
  EXPECT_EQ(name([](std::vector<at::Tensor> parameters) {
              return std::make_shared<torch::optim::SGD>(std::move(parameters),
                                                         torch::optim::SGDOptions(0.1));
            }),
            "SGD");
}

// weight_quantization is of inference; that of training is a part of compression_training.
TEST(EngineGetters, QuantizeTrainingIsNotWeightQuantization) {
  Json config = kMethodsConfig;
  config["weight_quantization"] = {{"enabled", false}};
  EXPECT_FALSE(make_engine(config)->quantize_training());
}

TEST(ProgressiveLayerDrop, KeepsFewerLayersWithEachStep) {
  const Json section = {{"enabled", true}, {"theta", 0.5}, {"gamma", 0.1}};
  const auto engine = make_engine(testing::basic({{"progressive_layer_drop", section}}));
  for (const double expected : {1.0, 1.0, 0.5 * std::exp(-0.1) + 0.5, 0.5 * std::exp(-0.2) + 0.5}) {
    EXPECT_DOUBLE_EQ(engine->get_pld_theta().value(), expected);
    testing::train_step(*engine);
  }
}

}  // namespace
}  // namespace deepspeed
