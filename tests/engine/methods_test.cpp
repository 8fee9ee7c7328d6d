// Every method of DeepSpeed's engine: what it gives or does here, or the error that says why not.
#include <filesystem>
#include <functional>
#include <set>

#include <ATen/ops/full_like.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "deepspeed/checkpoint/torch_archive.h"

#include "tests/engine/make_engine.h"

namespace deepspeed {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::make_engine;
using testing::odd_batch;
using testing::train_step;
using TestEngine = DeepSpeedEngine<testing::OddNet>;

struct Row {
  std::string method;
  std::function<void(TestEngine& engine)> check;
};

struct Folder {
  fs::path path = fs::temp_directory_path() / ("methods_test." + std::to_string(getpid()));
  Folder() { fs::remove_all(path); }
  ~Folder() { fs::remove_all(path); }
};

/// Other values than the defaults wherever a key has an effect already.
const Json kConfig = Json::parse(R"({
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 2,
  "steps_per_print": 50,
  "dataloader_drop_last": true,
  "gradient_clipping": 0.5,
  "prescale_gradients": true,
  "communication_data_type": "fp32",
  "zero_allow_untested_optimizer": true,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "betas": [0.8, 0.95]}},
  "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
  "checkpoint": {"tag_validation": "Fail"},
  "zero_optimization": {
    "stage": 1, "reduce_scatter": false, "overlap_comm": true, "reduce_bucket_size": 1000,
    "allgather_partitions": false, "allgather_bucket_size": 2000, "contiguous_gradients": false,
    "round_robin_gradients": true, "ignore_unused_parameters": true, "use_multi_rank_bucket_allreduce": false
  }
})");

template <class Result, class Class, class Expected>
Row gives(const char* method, Result (Class::*getter)() const, Expected expected) {
  return {method, [=](TestEngine& engine) { EXPECT_EQ((engine.*getter)(), expected); }};
}

template <class Call>
Row waits_for(const char* method, const char* feature, Call call) {
  return {method, [=](TestEngine& engine) {
            try {
              call(engine);
              ADD_FAILURE() << "no error";
            } catch (const NotSupportedError& error) {
              EXPECT_THAT(error.what(), HasSubstr(std::string(method) + "() comes with " + feature));
            }
          }};
}

at::Tensor loss_of(TestEngine& engine) {
  const auto [inputs, targets] = odd_batch(0, 4);
  return engine.forward(inputs, targets);
}

at::Tensor weight_of(TestEngine& engine) { return engine.module().named_parameters()["last.weight"]; }

const std::vector<Row> kGetters = {
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
    ROW(dynamic_loss_scale, false),
    ROW(initial_dynamic_scale, 65536.0),
    ROW(optimizer_name, std::optional<std::string>("AdamW")),
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
    ROW(monitor_enabled, false),
    ROW(flops_profiler_enabled, false),
    ROW(flops_profiler_recompute_fwd_factor, 0.0),
    ROW(flops_profiler_profile_step, 1),
    ROW(flops_profiler_module_depth, -1),
    ROW(flops_profiler_top_modules, 1),
    ROW(flops_profiler_detailed, true),
    ROW(flops_profiler_output_file, std::nullopt),
    ROW(autotuning_enabled, false),
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
    ROW(preemption_requested, false),
    ROW(device, at::Device(at::kCPU)),
#undef ROW
    {"zero_offload_optimizer", [](TestEngine& e) { EXPECT_EQ(e.zero_offload_optimizer().device, "none"); }},
    {"zero_offload_param", [](TestEngine& e) { EXPECT_EQ(e.zero_offload_param().device, "none"); }},
    {"aio_config", [](TestEngine& e) { EXPECT_EQ(e.aio_config().queue_depth, 8); }},
    {"torch_autocast_dtype", [](TestEngine& e) { EXPECT_THROW(e.torch_autocast_dtype(), UsageError); }},
    {"config", [](TestEngine& e) { EXPECT_EQ(e.config().raw, kConfig); }},
};

const std::vector<Row> kTraining = {
    {"forward", [](TestEngine& e) { EXPECT_TRUE(loss_of(e).requires_grad()); }},
    {"operator()",
     [](TestEngine& e) {
       const auto [inputs, targets] = odd_batch(0, 4);
       EXPECT_TRUE(e(inputs, targets).equal(loss_of(e)));
     }},
    {"module", [](TestEngine& e) { EXPECT_FALSE(e.module().parameters().empty()); }},
    {"backward",
     [](TestEngine& e) {
       const auto loss = loss_of(e);
       EXPECT_TRUE(e.backward(loss).equal(loss.detach() / 2));
       EXPECT_TRUE(e.backward(loss_of(e), {.scale_wrt_gas = false}).equal(loss.detach()));
       EXPECT_FALSE(e.backward(loss_of(e), {.release_loss = true}).defined());
     }},
    {"scale",
     [](TestEngine& e) {
       const auto loss = loss_of(e);
       EXPECT_TRUE(e.scale(loss).equal(loss));
     }},
    {"finish_backward",
     [](TestEngine& e) {
       loss_of(e).backward();
       e.finish_backward();
       e.set_gradient_accumulation_boundary(true);
       e.step();
       EXPECT_TRUE(e.was_step_applied());
     }},
    {"step",
     [](TestEngine& e) {
       const auto before = weight_of(e).detach().clone();
       train_step(e);
       EXPECT_TRUE(weight_of(e).equal(before));
       for (int i = 0; i < 5; ++i) train_step(e);  // the first two rates of the warm-up are 0
       EXPECT_FALSE(weight_of(e).equal(before));
     }},
    {"micro_steps, global_steps, global_samples, skipped_steps, was_step_applied",
     [](TestEngine& e) {
       train_step(e);
       EXPECT_FALSE(e.was_step_applied());
       train_step(e);
       EXPECT_TRUE(e.was_step_applied());
       EXPECT_EQ(e.micro_steps(), 2);
       EXPECT_EQ(e.global_steps(), 1);
       EXPECT_EQ(e.global_samples(), 8);
       EXPECT_EQ(e.skipped_steps(), 0);
     }},
    {"is_gradient_accumulation_boundary, set_gradient_accumulation_boundary",
     [](TestEngine& e) {
       EXPECT_FALSE(e.is_gradient_accumulation_boundary());
       e.set_gradient_accumulation_boundary(true);
       EXPECT_TRUE(e.is_gradient_accumulation_boundary());
     }},
    {"no_sync",
     [](TestEngine& e) {
       const auto scope = e.no_sync();
       EXPECT_THROW(e.step(), UsageError);
     }},
    {"coalesce_grad_reduction",
     [](TestEngine& e) {
       const auto scope = e.coalesce_grad_reduction();
       EXPECT_THROW(e.step(), UsageError);
     }},
    {"zero_grad",
     [](TestEngine& e) {
       e.backward(loss_of(e));
       e.zero_grad();
       EXPECT_FALSE(weight_of(e).grad().defined());
       e.set_gradient_accumulation_boundary(true);
       EXPECT_THROW(e.step(), UsageError);
     }},
    {"allreduce_gradients",
     [](TestEngine& e) {
       e.set_gradient_accumulation_boundary(true);
       e.backward(loss_of(e), {.allreduce_gradients = false});
       e.allreduce_gradients();
       e.step();
       EXPECT_TRUE(e.was_step_applied());
     }},
    {"train, eval",
     [](TestEngine& e) {
       e.eval();
       EXPECT_FALSE(e.module().is_training());
       e.train();
       EXPECT_TRUE(e.module().is_training());
     }},
    {"get_global_grad_norm after a step",
     [](TestEngine& e) {
       train_step(e);
       train_step(e);
       EXPECT_GT(e.get_global_grad_norm().value_or(0.0), 0.0);
     }},
    {"set_lr",
     [](TestEngine& e) {
       e.set_lr(0.25);
       EXPECT_EQ(e.get_lr(), std::vector<double>{0.25});
     }},
    {"set_train_batch_size",
     [](TestEngine& e) {
       e.set_train_batch_size(16);
       EXPECT_EQ(e.get_batch_info(), std::make_tuple(16, 4, 4));
       EXPECT_THROW(e.set_train_batch_size(5), UsageError);
     }},
    {"set_train_micro_batch_size",
     [](TestEngine& e) {
       e.set_train_micro_batch_size(3);
       EXPECT_EQ(e.get_batch_info(), std::make_tuple(6, 3, 2));
     }},
    {"memory", [](TestEngine& e) { EXPECT_GT(e.memory().total(), e.memory().parameters); }},
    {"install_preemption_handler",
     [](TestEngine& e) {
       e.install_preemption_handler({.signal = SIGUSR2});
       train_step(e);
       train_step(e);
       EXPECT_FALSE(e.preemption_requested());
     }},
    {"optimizer, lr_scheduler, world, model, seed, local_rank",
     [](TestEngine& e) {
       EXPECT_NE(e.optimizer(), nullptr);
       EXPECT_NE(e.lr_scheduler(), nullptr);
       EXPECT_EQ(e.world().size(), 1);
       EXPECT_FALSE(e.model().parameters.empty());
       EXPECT_EQ(e.seed(), e.seed());
       EXPECT_EQ(e.local_rank(), e.world().local_rank());
     }},
};

const std::vector<Row> kData = {
    {"deepspeed_io",
     [](TestEngine& e) {
       struct Numbers {
         size_t size() const { return 9; }
         at::Tensor get(size_t index) const { return at::full({}, static_cast<double>(index)); }
       };
       const auto loader = e.deepspeed_io(Numbers{}, {.route = "eval"});
       std::vector<double> sums;
       for (auto& batch : *loader) sums.push_back(batch.sum().item<double>());
       EXPECT_EQ(sums, (std::vector<double>{6, 22}));  // dataloader_drop_last
       const auto count = [](const std::vector<at::Tensor>& examples) { return examples.size(); };
       const auto counts = e.deepspeed_io(Numbers{}, {.batch_size = 3, .num_local_io_workers = 2}, count);
       EXPECT_EQ(*counts->begin(), 3U);
       EXPECT_EQ(counts->size(), 3);
       EXPECT_THROW(e.deepspeed_io(Numbers{}, {.route = "test"}), UsageError);
       e.track_loader(loader->position());
     }},
};

const std::vector<Row> kStates = {
    {"module_state_dict, load_module_state_dict",
     [](TestEngine& e) {
       auto state = e.module_state_dict();
       EXPECT_EQ(e.module_state_dict(/*exclude_frozen_parameters=*/true).size() + 1, state.size());
       for (auto& named : state) named.tensor = at::full_like(named.tensor, 0.5);
       e.load_module_state_dict(state);
       EXPECT_TRUE(weight_of(e).equal(at::full_like(weight_of(e), 0.5)));
       EXPECT_THROW(e.load_module_state_dict({}), UsageError);
     }},
    {"save_checkpoint, load_checkpoint",
     [](TestEngine& e) {
       const Folder folder;
       train_step(e);
       train_step(e);
       e.save_checkpoint(folder.path);
       const auto again = make_engine(kConfig);
       EXPECT_FALSE(again->load_checkpoint(folder.path).path.empty());
       EXPECT_EQ(again->global_steps(), 1);
       EXPECT_THROW(e.save_checkpoint(""), UsageError);
       EXPECT_TRUE(e.load_checkpoint(folder.path / "nowhere").path.empty());
       size_t num_tensors = 0;
       again->load_checkpoint(folder.path,
                              {.custom_load_fn = [&](const auto& file) { num_tensors = file.size(); }});
       EXPECT_EQ(num_tensors, e.module_state_dict().size());
     }},
    {"save_16bit_model, save_fp16_model",
     [](TestEngine& e) {
       const Folder folder;
       e.save_16bit_model(folder.path);
       e.save_fp16_model(folder.path, "trained.bin", /*exclude_frozen_parameters=*/true);
       const auto all = checkpoint::read_torch_archive(folder.path / "pytorch_model.bin");
       const auto trained = checkpoint::read_torch_archive(folder.path / "trained.bin");
       EXPECT_NE(all.as_dict().find("frozen"), nullptr);
       EXPECT_EQ(trained.as_dict().find("frozen"), nullptr);
       EXPECT_EQ(trained.as_dict().size() + 1, all.as_dict().size());
     }},
};

const std::vector<Row> kOthers = {
    {"compile, is_compiled",
     [](TestEngine& e) {
       EXPECT_FALSE(e.is_compiled());
       e.compile({.backend = "eager"});
       EXPECT_TRUE(e.is_compiled());
       EXPECT_THROW(e.compile({.schedule = Json::array({Json::array({0, "prefetch"})})}), NotSupportedError);
     }},
    {"empty_partition_cache",
     [](TestEngine& e) {
       e.empty_partition_cache();
       train_step(e);
     }},
    {"destroy",
     [](TestEngine& e) {
       const auto loss = loss_of(e).detach();
       e.destroy();
       EXPECT_TRUE(loss_of(e).detach().equal(loss));
       EXPECT_EQ(e.optimizer(), nullptr);
       try {
         e.step();
         ADD_FAILURE() << "no error";
       } catch (const UsageError& error) {
         EXPECT_THAT(error.what(), HasSubstr("step() after destroy()"));
       }
     }},
    waits_for("offload_states", "offloading", [](TestEngine& e) { e.offload_states(); }),
    waits_for("reload_states", "offloading", [](TestEngine& e) { e.reload_states(/*non_blocking=*/true); }),
    waits_for("get_wall_clock_timers", "the timers", [](TestEngine& e) { e.get_wall_clock_timers(); }),
    waits_for("set_data_post_process_func", "the data_efficiency section",
              [](TestEngine& e) { e.set_data_post_process_func(nullptr); }),
    waits_for("set_custom_curriculum_learning_schedule", "the data_efficiency section",
              [](TestEngine& e) { e.set_custom_curriculum_learning_schedule(Json()); }),
    waits_for("random_ltd_initialize", "the data_efficiency section",
              [](TestEngine& e) { e.random_ltd_initialize(); }),
    waits_for("init_inference", "inference", [](TestEngine& e) { init_inference(e.module_ptr()); }),
    waits_for("default_inference_config", "inference", [](TestEngine&) { default_inference_config(); }),
    waits_for("tp_model_init", "tensor parallelism", [](TestEngine& e) { tp_model_init(e.module_ptr(), 2); }),
};

TEST(EngineMethods, GiveAResultOrSayWhatTheyWaitFor) {
  size_t num_methods = 0;
  for (const auto* table : {&kGetters, &kTraining, &kData, &kStates, &kOthers}) {
    for (const Row& row : *table) {
      SCOPED_TRACE(row.method);
      const auto engine = make_engine(kConfig);
      EXPECT_NO_THROW(row.check(*engine));
      ++num_methods;
    }
  }
  EXPECT_GT(num_methods, 130U);
}

// The getters follow the config: with other values they give others.
TEST(EngineMethods, GettersFollowTheConfig) {
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
  EXPECT_EQ(engine->loss_scale(), 16.0);
  EXPECT_TRUE(engine->zero_optimization_partition_gradients());
  EXPECT_FALSE(engine->zero_overlap_comm());
  EXPECT_FALSE(engine->checkpoint_tag_validation_enabled());
  EXPECT_EQ(engine->optimizer_name(), "SGD");
  EXPECT_EQ(engine->scheduler_name(), std::nullopt);
  EXPECT_TRUE(engine->scheduler_params().is_null());
  EXPECT_EQ(engine->get_mom()[0].first, 0.9);
}

}  // namespace
}  // namespace deepspeed
