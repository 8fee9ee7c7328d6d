// Reads a config: the table of the top level, and what is resolved after it has been read.
//
// The table has the plain keys, then the sections, in the order of DeepSpeed's documentation. Each entry
// links a key to a member of DeepSpeedConfig; the member's initialiser is the default. Batch sizes are
// special: absent ones are null and resolved later (batch.h), so their entries only write JSON. Sections have
// their own tables in the sub-folders.
//
// resolve() reads the values by the table and assigns them to the members. Then it applies keys that stand
// for others and finds the batch sizes. Last it checks what keys require of each other (rules.cpp), and warns
// of values without effect.
#include "deepspeed/config/config.h"

#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/config/batch.h"
#include "deepspeed/config/data/keys.h"
#include "deepspeed/config/parallel/tables.h"
#include "deepspeed/config/support.h"
#include "deepspeed/config/table/named_type.h"
#include "deepspeed/config/table/read.h"
#include "deepspeed/config/tools/elastic_batch.h"
#include "deepspeed/config/tools/tables.h"
#include "deepspeed/config/training/tables.h"
#include "deepspeed/config/zero/tables.h"

namespace deepspeed::config {
namespace {

/// Makes the entry of a batch size key. An absent size is null; to_json() writes the resolved size.
Entry<DeepSpeedConfig> batch_entry(const char* key, int64_t DeepSpeedConfig::*member, const char* meaning) {
  return {integer(key, nullptr, meaning, {at_least(1)}), nullptr,
          [member](const DeepSpeedConfig& config) { return Json(config.*member); }};
}

std::vector<Entry<DeepSpeedConfig>> scalar_entries() {
  using C = DeepSpeedConfig;
  const auto dtypes = one_of({"fp32", "fp16", "bf16"});
  return {
      batch_entry("train_batch_size", &C::train_batch_size,
                  "Samples of one optimizer step, of all ranks together."),
      batch_entry("train_micro_batch_size_per_gpu", &C::train_micro_batch_size_per_gpu,
                  "Samples of one forward pass on one rank."),
      batch_entry("gradient_accumulation_steps", &C::gradient_accumulation_steps,
                  "Forward and backward passes of one optimizer step."),
      entry("managed_gradient_accumulation", &C::managed_gradient_accumulation,
            "The engine counts the passes of a step; false: the caller does."),
      entry("steps_per_print", &C::steps_per_print, "Steps between two lines of progress; null: none.",
            {at_least(1), infinity_is_null(), per_rank()}),
      entry("dump_state", &C::dump_state, "Log the whole config at the start.", {per_rank()}),
      entry("gradient_clipping", &C::gradient_clipping, "The greatest norm of the gradients; 0: any.",
            {at_least(0)}),
      entry("prescale_gradients", &C::prescale_gradients, "Divide gradients before they are summed."),
      entry("gradient_predivide_factor", &C::gradient_predivide_factor,
            "By how much of the world size gradients are divided before they are summed.", {above(0)}),
      entry("gradient_allreduce_op", &C::gradient_allreduce_op, "How the gradients of the ranks combine.",
            {one_of({"mean", "sum"}), in_familiar_words("Invalid gradient_allreduce_op")}),
      entry("sparse_gradients", &C::sparse_gradients,
            "Send the touched rows of embeddings' gradients alone; stages 0 and 1."),
      entry("communication_data_type", &C::communication_data_type,
            "The type in which gradients travel; null: the model's.", {dtypes}),
      entry("seq_parallel_communication_data_type", &C::seq_parallel_communication_data_type,
            "The same under sequence parallelism.",
            {dtypes, without_effect("sequence parallelism does not exist yet")}),
      entry("disable_allgather", &C::disable_allgather,
            "Older than zero_optimization.allgather_partitions, whose opposite it is."),
      entry("fp32_allreduce", &C::fp32_allreduce,
            "Older than communication_data_type: the same as \"fp32\" there."),
      entry("zero_allow_untested_optimizer", &C::zero_allow_untested_optimizer,
            "Accept optimizers from stage 1 on that DeepSpeed does not list as tested with ZeRO: Lamb, SGD, "
            "RMSprop and those of your own."),
      entry(
          "zero_force_ds_cpu_optimizer", &C::zero_force_ds_cpu_optimizer,
          "With offload_optimizer, refuse an optimizer passed to initialize() that is not made for a step on "
          "the host.",
          {effective_where({"zero_optimization.offload_optimizer.device"}, {"cpu", "nvme"},
                           "only offload_optimizer uses it")}),
      entry("graph_harvesting", &C::graph_harvesting, "Replay parts of the step as CUDA graphs.",
            {without_effect("a step is a few fused kernels, which leave a graph nothing to save; cuda_graphs "
                            "is for forward and backward")}),
      entry("wall_clock_breakdown", &C::wall_clock_breakdown,
            "Log the times of a step's parts; waits for the device at each.", {per_rank()}),
      entry("memory_breakdown", &C::memory_breakdown,
            "Log the memory in use before and after a step's parts.", {per_rank()}),
      entry("dataloader_drop_last", &C::dataloader_drop_last, "Leave out a last batch that is not full."),
      entry("vocabulary_size", &C::vocabulary_size, "A size that is no multiple of 8 gets a warning.",
            {at_least(1), per_rank()}),
      entry("log_level", &C::log_level, "The least level of the lines that are logged.",
            {one_of({"debug", "info", "warning", "error", "critical", "off"}), per_rank()}),
      entry("use_data_before_expert_parallelism", &C::use_data_before_expert_parallelism,
            "Place data parallelism outside expert parallelism.", {not_yet()}),
      entry("sequence_parallel_size", &C::sequence_parallel_size, "Ranks that share one sequence.",
            {at_least(1), only({nullptr, 1})}),
      entry("data_parallel_size", &C::data_parallel_size, "Ranks with different data; the world has as many.",
            {at_least(1)}),
      entry("seed", &C::seed, "Fixes the random numbers of dropout and of the order of the data.",
            {at_least(0)}),
      entry("allgather_size", &C::allgather_size,
            "allgather_bucket_size where zero_optimization is true or false.", {at_least(0)}),
  };
}

std::vector<Entry<DeepSpeedConfig>> section_entries() {
  using C = DeepSpeedConfig;
  return {
      section_entry("fp16", &C::fp16, fp16_table(), "Training in float16.", {auto_means_default()}),
      section_entry("bf16", &C::bf16, bf16_table(), "Training in bfloat16.",
                    {or_null(), alias("bfloat16"), auto_means_default()}),
      section_entry("optimizer", &C::optimizer, optimizer_table(), "The optimizer."),
      section_entry("scheduler", &C::scheduler, scheduler_table(), "The schedule of the learning rate."),
      section_entry("zero_optimization", &C::zero_optimization, zero_table(),
                    "What the ranks share out among them.",
                    {auto_means_default(), normalized_by(zero_from_truth_value)}),
      section_entry("checkpoint", &C::checkpoint, checkpoint_table(), "Saving and loading."),
  };
}

std::vector<Entry<DeepSpeedConfig>> precision_and_monitor_entries() {
  using C = DeepSpeedConfig;
  return {
      section_entry("data_types", &C::data_types, data_types_table(), "The types of tensors."),
      section_entry("amp", &C::amp, amp_table(),
                    "Apex's mixed precision; its further keys are its arguments.", {keeps_unknown_keys()}),
      section_entry("torch_autocast", &C::torch_autocast, torch_autocast_table(),
                    "PyTorch's mixed precision."),
      section_entry("tensorboard", &C::tensorboard, tensorboard_table(), "Scalars to TensorBoard.",
                    {auto_means_default(), per_rank()}),
      section_entry("csv_monitor", &C::csv_monitor, csv_monitor_table(), "Scalars to CSV files.",
                    {auto_means_default(), per_rank()}),
      kept_section("wandb", &C::wandb, wandb_keys(), "Scalars to Weights & Biases.",
                   {auto_means_default(), per_rank()}),
      kept_section("comet", &C::comet, comet_keys(), "Scalars to Comet.", {auto_means_default(), per_rank()}),
      section_entry("flops_profiler", &C::flops_profiler, flops_profiler_table(),
                    "The cost of a step, layer by layer.", {per_rank()}),
      section_entry("comms_logger", &C::comms_logger, comms_logger_table(), "Sizes and times of collectives.",
                    {auto_means_default(), per_rank()}),
      section_entry("timers", &C::timers, timers_table(), "Timers.", {per_rank()}),
      kept_section("nebula", &C::nebula, nebula_keys(), "Checkpoints through the Nebula service."),
      any_entry("datastates_ckpt", &C::datastates_ckpt,
                "Checkpoints through DataStates; any value but false turns it on.", {not_yet()}),
  };
}

std::vector<Entry<DeepSpeedConfig>> parallel_entries() {
  using C = DeepSpeedConfig;
  return {
      section_entry("activation_checkpointing", &C::activation_checkpointing,
                    activation_checkpointing_table(),
                    "How regions of checkpointing::checkpoint() keep their inputs, once "
                    "checkpointing::configure() gets the config."),
      section_entry("aio", &C::aio, aio_table(), "Asynchronous files, as offloading to NVMe uses them.",
                    {per_rank()}),
      section_entry("pipeline", &C::pipeline, pipeline_table(), "Pipeline parallelism.",
                    {auto_means_default()}),
      kept_section("sparse_attention", &C::sparse_attention, sparse_attention_keys(),
                   "Block-sparse attention.", {not_yet()}),
      kept_section("hybrid_engine", &C::hybrid_engine, hybrid_engine_keys(),
                   "Training and generation in turn.", {auto_means_default()}),
      kept_section("compile", &C::compile, compile_keys(), "Compiled training.", {auto_means_default()}),
      kept_section("tensor_parallel", &C::tensor_parallel, tensor_parallel_keys(), "Tensor parallelism.",
                   {auto_means_default()}),
      kept_section("expert_parallel", &C::expert_parallel, expert_parallel_keys(), "Expert parallelism."),
  };
}

std::vector<Entry<DeepSpeedConfig>> training_entries() {
  using C = DeepSpeedConfig;
  return {
      kept_section("elasticity", &C::elasticity, elasticity_table().fields(),
                   "Batch sizes that fit many numbers of devices."),
      kept_section("autotuning", &C::autotuning, autotuning_keys(), "A search for the fastest config."),
      kept_section("eigenvalue", &C::eigenvalue, eigenvalue_keys(),
                   "The greatest eigenvalue of each layer's Hessian."),
      section_entry("progressive_layer_drop", &C::progressive_layer_drop, progressive_layer_drop_table(),
                    "Layers left out at random, more as training goes."),
      section_entry("cuda_graphs", &C::cuda_graphs, cuda_graphs_table(),
                    "The model's forward and backward as CUDA graphs, for models of many small kernels; no "
                    "key of DeepSpeed's."),
      kept_section("curriculum_learning", &C::curriculum_learning, curriculum_learning_keys(),
                   "Easy samples first, the older form."),
      kept_section("data_efficiency", &C::data_efficiency, data_efficiency_keys(),
                   "Less data for the same quality."),
      kept_section("compression_training", &C::compression_training, compression_training_keys(),
                   "Training for a smaller model."),
      kept_section("weight_quantization", &C::weight_quantization, weight_quantization_keys(),
                   "Weights of 4 or 8 bits in inference.",
                   {auto_means_default(), normalized_by(with_switch)}),
  };
}

std::vector<Entry<DeepSpeedConfig>> all_entries() {
  std::vector<Entry<DeepSpeedConfig>> all;
  for (auto* part :
       {scalar_entries, section_entries, precision_and_monitor_entries, parallel_entries, training_entries}) {
    for (auto& entry : part()) all.push_back(std::move(entry));
  }
  return all;
}

const Table<DeepSpeedConfig>& top_level_table() {
  static const Table<DeepSpeedConfig> table(all_entries());
  return table;
}

std::optional<int64_t> batch_size(const Json& values, const char* key) {
  const auto found = values.find(key);
  if (found == values.end() || found->is_null()) return std::nullopt;
  return found->get<int64_t>();
}

/// Returns the batch sizes that the section elasticity chooses. Given sizes must equal the chosen ones,
/// unless the section says to ignore them. world: data-parallel ranks, each with the section's
/// model_parallel_size devices.
BatchSizes choose_elastic_sizes(const Json& elasticity, const BatchSizes& given, int64_t world) {
  const ElasticRules rules = ElasticRules::from_json(elasticity);
  const ElasticBatch batch = elastic_batch_of_job(rules, world * rules.model_parallel_size);
  const BatchSizes chosen{batch.train_batch_size, batch.micro_batch_size,
                          batch.train_batch_size / (batch.micro_batch_size * world)};
  const auto require_same = [&](const char* key, const std::optional<int64_t>& size,
                                const std::optional<int64_t>& expected) {
    if (!size || size == expected || rules.ignore_non_elastic_batch_info) return;
    raise<ConfigError>(key, ": got ", *size, " beside elasticity.enabled true, which chooses ", *expected,
                       "; leave the key out, or set elasticity.ignore_non_elastic_batch_info to true");
  };
  require_same("train_batch_size", given.train_batch_size, chosen.train_batch_size);
  require_same("train_micro_batch_size_per_gpu", given.train_micro_batch_size_per_gpu,
               chosen.train_micro_batch_size_per_gpu);
  require_same("gradient_accumulation_steps", given.gradient_accumulation_steps,
               chosen.gradient_accumulation_steps);
  return chosen;
}

void resolve_batch(DeepSpeedConfig& config, const Json& values, int64_t world) {
  const BatchSizes given = {batch_size(values, "train_batch_size"),
                            batch_size(values, "train_micro_batch_size_per_gpu"),
                            batch_size(values, "gradient_accumulation_steps")};
  const bool is_elastic = config.elasticity.is_object() && config.elasticity.value("enabled", false);
  const BatchSizes sizes =
      resolve_batch_sizes(is_elastic ? choose_elastic_sizes(config.elasticity, given, world) : given, world);
  config.train_batch_size = *sizes.train_batch_size;
  config.train_micro_batch_size_per_gpu = *sizes.train_micro_batch_size_per_gpu;
  config.gradient_accumulation_steps = *sizes.gradient_accumulation_steps;
}

/// Drops a section without a type, which would choose nothing, and logs a warning.
template <class Section>
void drop_without_type(std::optional<Section>& section, const char* name) {
  if (!section || !section->type.empty()) return;
  log::warning("[config] ", name, " has no type, so the section has no effect");
  section.reset();
}

/// Moves `allgather_size` from the top level to zero_optimization. Configs with the older form of that
/// section, true or false, have the key at the top level.
void apply_allgather_size(DeepSpeedConfig& config) {
  if (!config.allgather_size) return;
  const auto zero = config.raw.find("zero_optimization");
  if (zero == config.raw.end() || !zero->is_boolean()) {
    raise<ConfigError>("allgather_size: got it without zero_optimization true or false, expected ",
                       "zero_optimization.allgather_bucket_size in its place");
  }
  if (config.zero_optimization.stage > 0)
    config.zero_optimization.allgather_bucket_size = *config.allgather_size;
  config.allgather_size.reset();
}

/// Moves two keys of old versions to their replacements.
void apply_older_keys(DeepSpeedConfig& config) {
  if (config.disable_allgather) config.zero_optimization.allgather_partitions = false;
  if (!config.fp32_allreduce) return;
  if (config.communication_data_type.value_or("fp32") != "fp32") {
    raise<ConfigError>("fp32_allreduce: got true beside communication_data_type \"",
                       *config.communication_data_type, "\", expected one of them");
  }
  config.communication_data_type = "fp32";
}

/// Turns clipping off by default for optimizers whose ranks exchange 1 bit per element. These have no
/// gradient norm to clip by. A clipping value that is given is an error (rules.cpp).
void apply_exchange(DeepSpeedConfig& config) {
  const bool is_given = config.raw.contains("gradient_clipping");
  if (!is_given && config.optimizer && find_one_bit_optimizer(config.optimizer->type) != nullptr)
    config.gradient_clipping = 0.0;
}

void warn(const DeepSpeedConfig& config, const Json& values) {
  std::string ignored;
  for (const std::string& value : values_without_effect(all_options(), values, "", values))
    ignored += (ignored.empty() ? "" : ", ") + value;
  if (!ignored.empty()) log::warning("[config] without effect: ", ignored);
  if (config.vocabulary_size && *config.vocabulary_size % 8 != 0) {
    log::warning("[config] vocabulary_size ", *config.vocabulary_size,
                 " is not a multiple of 8, which is slower on tensor cores");
  }
}

DeepSpeedConfig resolve(const Json& given, int64_t data_parallel_world_size) {
  DeepSpeedConfig config;
  config.raw = given;
  const Json values = read_section(all_options(), config.raw, "");
  top_level_table().assign(config, values);
  drop_without_type(config.optimizer, "optimizer");
  drop_without_type(config.scheduler, "scheduler");
  apply_allgather_size(config);
  apply_older_keys(config);
  apply_exchange(config);
  resolve_batch(config, values, data_parallel_world_size);
  require_consistent(config, data_parallel_world_size);
  warn(config, values);
  return config;
}

}  // namespace

const Field& all_options() {
  static const Field root = section("", "The config.", top_level_table().fields());
  return root;
}

DeepSpeedConfig load_config(const ConfigSource& source, int64_t data_parallel_world_size) {
  const Json given = source.read();
  require_supported(all_options(), given, "");
  return resolve(given, data_parallel_world_size);
}

DeepSpeedConfig read_config(const ConfigSource& source, int64_t data_parallel_world_size) {
  return resolve(source.read(), data_parallel_world_size);
}

Json to_json(const DeepSpeedConfig& config) { return top_level_table().to_json(config); }

}  // namespace deepspeed::config
