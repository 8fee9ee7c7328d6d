#include "deepspeed/config/top_level.h"

#include <utility>

#include "deepspeed/config/later_sections.h"

namespace deepspeed::config {
namespace {

/// A batch size: null where it is absent, and only ever shown resolved.
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
            "The engine counts the passes of a step; false: the caller does.", {not_yet()}),
      entry("steps_per_print", &C::steps_per_print, "Steps between two lines of progress; null: none.",
            {at_least(1)}),
      entry("dump_state", &C::dump_state, "Log the whole config at the start."),
      entry("gradient_clipping", &C::gradient_clipping, "The greatest norm of the gradients; 0: any.",
            {at_least(0)}),
      entry("prescale_gradients", &C::prescale_gradients, "Divide gradients before they are summed."),
      entry("gradient_predivide_factor", &C::gradient_predivide_factor,
            "By how much of the world size gradients are divided before they are summed.", {above(0)}),
      entry("gradient_allreduce_op", &C::gradient_allreduce_op, "How the gradients of the ranks combine.",
            {one_of({"mean", "sum"})}),
      entry("sparse_gradients", &C::sparse_gradients, "Reduce gradients of embeddings as rows.", {not_yet()}),
      entry("communication_data_type", &C::communication_data_type,
            "The type in which gradients travel; null: the model's.", {dtypes}),
      entry("seq_parallel_communication_data_type", &C::seq_parallel_communication_data_type,
            "The same under sequence parallelism.", {dtypes}),
      entry("disable_allgather", &C::disable_allgather, "Of old versions.", {not_yet()}),
      boolean("fp32_allreduce", false, "Of old versions; communication_data_type takes its place.",
              {not_yet()}),
      entry("zero_allow_untested_optimizer", &C::zero_allow_untested_optimizer,
            "Accept optimizers under ZeRO that it was not tested with."),
      entry("zero_force_ds_cpu_optimizer", &C::zero_force_ds_cpu_optimizer,
            "Insist on the library's own optimizer for a step on the host."),
      entry("graph_harvesting", &C::graph_harvesting, "Replay parts of the step as CUDA graphs.",
            {not_yet()}),
      entry("wall_clock_breakdown", &C::wall_clock_breakdown, "Log the times of a step's parts.",
            {not_yet()}),
      entry("memory_breakdown", &C::memory_breakdown, "Log the memory in use after a step's parts.",
            {not_yet()}),
      entry("dataloader_drop_last", &C::dataloader_drop_last, "Leave out a last batch that is not full."),
      entry("vocabulary_size", &C::vocabulary_size, "A size that is no multiple of 8 gets a warning.",
            {at_least(1)}),
      entry("log_level", &C::log_level, "The least level of the lines that are logged.",
            {one_of({"debug", "info", "warning", "error", "critical", "off"})}),
      entry("use_data_before_expert_parallelism", &C::use_data_before_expert_parallelism,
            "Place data parallelism outside expert parallelism.", {not_yet()}),
      entry("sequence_parallel_size", &C::sequence_parallel_size, "Ranks that share one sequence.",
            {at_least(1), only({nullptr, 1})}),
      entry("data_parallel_size", &C::data_parallel_size, "Ranks with different data; the world has as many.",
            {at_least(1)}),
      entry("seed", &C::seed, "Fixes the random numbers of dropout and of the order of the data.",
            {at_least(0)}),
      integer("allgather_size", nullptr, "allgather_bucket_size where zero_optimization is true or false.",
              {at_least(0)}),
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

std::vector<Entry<DeepSpeedConfig>> all_entries() {
  auto entries = scalar_entries();
  for (auto& entry : section_entries()) entries.push_back(std::move(entry));
  for (Field& field : later_sections()) entries.emplace_back(std::move(field));
  return entries;
}

}  // namespace

const Table<DeepSpeedConfig>& top_level_table() {
  static const Table<DeepSpeedConfig> table(all_entries());
  return table;
}

const Field& all_options() {
  static const Field root = section("", "The config.", top_level_table().fields());
  return root;
}

}  // namespace deepspeed::config
