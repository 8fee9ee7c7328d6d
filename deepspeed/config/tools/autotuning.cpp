#include "deepspeed/config/tools/tables.h"

namespace deepspeed::config {
namespace {

const Table<ModelInfoConfig>& model_info_table() {
  using C = ModelInfoConfig;
  static const Table<C> table({
      entry("profile", &C::profile, "Measure it."),
      entry("num_params", &C::num_params, "Parameters."),
      entry("hidden_size", &C::hidden_size, "The width."),
      entry("num_layers", &C::num_layers, "The depth."),
  });
  return table;
}

}  // namespace

const Table<AutotuningConfig>& autotuning_table() {
  using C = AutotuningConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {not_yet()}),
      entry("fast", &C::fast, "Search micro batch sizes and stages alone."),
      entry("results_dir", &C::results_dir, "Where results go.", {not_empty()}),
      entry("exps_dir", &C::exps_dir, "Where experiments go.", {not_empty()}),
      entry("overwrite", &C::overwrite, "Run experiments again."),
      entry("start_profile_step", &C::start_profile_step, "The first step that is measured."),
      entry("end_profile_step", &C::end_profile_step, "The last step that is measured."),
      entry("metric", &C::metric, "What is compared.",
            {one_of({"throughput", "latency", "flops", "forward", "step"})}),
      entry("metric_path", &C::metric_path, "Where the metric is written."),
      section_entry("model_info", &C::model_info, model_info_table(), "What is known of the model.",
                    {or_null()}),
      entry("model_info_path", &C::model_info_path, "Where it is written."),
      entry("tuner_type", &C::tuner_type, "The search.", {one_of({"gridsearch", "random", "model_based"})}),
      entry("tuner_early_stopping", &C::tuner_early_stopping, "Trials without gain that end the search."),
      entry("tuner_num_trials", &C::tuner_num_trials, "The most trials."),
      entry("arg_mappings", &C::arg_mappings, "Command-line arguments by key."),
      entry("mp_size", &C::mp_size, "Ranks that share a model.", {at_least(1)}),
      entry("max_train_batch_size", &C::max_train_batch_size, "The greatest train_batch_size."),
      entry("min_train_batch_size", &C::min_train_batch_size, "The least train_batch_size."),
      entry("max_train_micro_batch_size_per_gpu", &C::max_train_micro_batch_size_per_gpu,
            "The greatest micro batch size."),
      entry("min_train_micro_batch_size_per_gpu", &C::min_train_micro_batch_size_per_gpu,
            "The least micro batch size."),
      entry("num_tuning_micro_batch_sizes", &C::num_tuning_micro_batch_sizes,
            "Micro batch sizes that are tried."),
  });
  return table;
}

}  // namespace deepspeed::config
