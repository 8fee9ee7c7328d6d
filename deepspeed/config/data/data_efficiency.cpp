#include "deepspeed/config/data/tables.h"

namespace deepspeed::config {
namespace {

const Table<DataCurriculumConfig>& data_curriculum_table() {
  using C = DataCurriculumConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {not_yet()}),
      entry("data_cluster_path", &C::data_cluster_path, "Where clusters are kept."),
      entry("curriculum_metrics", &C::curriculum_metrics,
            "By name: the files, type and schedule of a metric."),
  });
  return table;
}

const Table<DynamicBatchingConfig>& dynamic_batching_table() {
  using C = DynamicBatchingConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {not_yet()}),
      entry("metrics_path", &C::metrics_path, "Where the lengths are.", {per_rank()}),
      entry("lr_scaling_method", &C::lr_scaling_method, "How the learning rate follows the batch.",
            {one_of({"linear", "sqrt", "none"})}),
      entry("min_batch_size", &C::min_batch_size, "The least samples.", {at_least(1)}),
      entry("max_batch_size", &C::max_batch_size, "The most samples."),
      entry("sequence_picking_order", &C::sequence_picking_order, "The order of the samples.",
            {one_of({"dataloader", "random", "seqlen"})}),
      entry("max_tokens", &C::max_tokens, "The most tokens."),
      entry("verbose", &C::verbose, "Log the batches.", {per_rank()}),
  });
  return table;
}

const Table<DataSamplingConfig>& data_sampling_table() {
  using C = DataSamplingConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {not_yet()}),
      entry("num_epochs", &C::num_epochs, "The most epochs.", {at_least(1)}),
      entry("num_workers", &C::num_workers, "Processes that load.", {at_least(0), per_rank()}),
      entry("pin_memory", &C::pin_memory, "Load into page-locked memory.", {per_rank()}),
      section_entry("curriculum_learning", &C::curriculum_learning, data_curriculum_table(),
                    "Easy samples first."),
      section_entry("dynamic_batching", &C::dynamic_batching, dynamic_batching_table(),
                    "Batches of so many tokens."),
  });
  return table;
}

const Table<RandomLtdGrowthConfig>& random_ltd_growth_table() {
  using C = RandomLtdGrowthConfig;
  static const Table<C> table({
      entry("require_steps", &C::require_steps, "Steps of the growth."),
      entry("seq_per_step", &C::seq_per_step, "Tokens of one step of it."),
  });
  return table;
}

const Table<RandomLtdScheduleConfig>& random_ltd_schedule_table() {
  using C = RandomLtdScheduleConfig;
  static const Table<C> table({
      entry("min_value", &C::min_value, "At the start."),
      entry("max_value", &C::max_value, "At the end."),
      entry("schedule_type", &C::schedule_type, "How it grows.", {one_of({"fixed_linear"})}),
      section_entry("schedule_config", &C::schedule_config, random_ltd_growth_table(),
                    "The arguments of that."),
  });
  return table;
}

const Table<TokenLrScheduleConfig>& token_lr_schedule_table() {
  using C = TokenLrScheduleConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {not_yet()}),
  });
  return table;
}

const Table<RandomLtdConfig>& random_ltd_table() {
  using C = RandomLtdConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {not_yet()}),
      entry("total_layer_num", &C::total_layer_num, "Layers of the model."),
      entry("random_ltd_layer_num", &C::random_ltd_layer_num, "Layers that drop."),
      entry("random_ltd_layer_id", &C::random_ltd_layer_id, "Their indices."),
      entry("model_mask_name", &C::model_mask_name, "The argument that holds the mask."),
      entry("model_type", &C::model_type, "encoder or decoder."),
      entry("hidden_state_order", &C::hidden_state_order, "The order of the axes."),
      section_entry("random_ltd_schedule", &C::random_ltd_schedule, random_ltd_schedule_table(),
                    "How many tokens stay."),
      section_entry("layer_token_lr_schedule", &C::layer_token_lr_schedule, token_lr_schedule_table(),
                    "A learning rate by tokens seen.", {keeps_unknown_keys()}),
  });
  return table;
}

const Table<DataRoutingConfig>& data_routing_table() {
  using C = DataRoutingConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {not_yet()}),
      section_entry("random_ltd", &C::random_ltd, random_ltd_table(), "Layers that see some of the tokens."),
  });
  return table;
}

}  // namespace

const Table<DataEfficiencyConfig>& data_efficiency_table() {
  using C = DataEfficiencyConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {not_yet()}),
      entry("seed", &C::seed, "Of the choice of samples."),
      section_entry("data_sampling", &C::data_sampling, data_sampling_table(), "Which samples come when."),
      section_entry("data_routing", &C::data_routing, data_routing_table(),
                    "Which tokens pass which layers."),
  });
  return table;
}

}  // namespace deepspeed::config
