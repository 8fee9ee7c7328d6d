#include "deepspeed/config/tools/tables.h"

namespace deepspeed::config {
namespace {

std::vector<Field> model_info_keys() {
  return {
      boolean("profile", false, "Measure it."),
      integer("num_params", nullptr, "Parameters."),
      integer("hidden_size", nullptr, "The width."),
      integer("num_layers", nullptr, "The depth."),
  };
}

}  // namespace

std::vector<Field> autotuning_keys() {
  return {
      boolean("enabled", false, "Turns the section on.", {not_yet()}),
      boolean("fast", true, "Search micro batch sizes and stages alone."),
      text("results_dir", "autotuning_results", "Where results go.", {not_empty()}),
      text("exps_dir", "autotuning_exps", "Where experiments go.", {not_empty()}),
      boolean("overwrite", true, "Run experiments again."),
      integer("start_profile_step", 3, "The first step that is measured."),
      integer("end_profile_step", 5, "The last step that is measured."),
      text("metric", "throughput", "What is compared.",
           {one_of({"throughput", "latency", "flops", "forward", "step"})}),
      text("metric_path", nullptr, "Where the metric is written."),
      section("model_info", "What is known of the model.", model_info_keys(), {or_null()}),
      text("model_info_path", nullptr, "Where it is written."),
      text("tuner_type", "gridsearch", "The search.", {one_of({"gridsearch", "random", "model_based"})}),
      integer("tuner_early_stopping", 5, "Trials without gain that end the search."),
      integer("tuner_num_trials", 50, "The most trials."),
      object("arg_mappings", nullptr, "Command-line arguments by key."),
      integer("mp_size", 1, "Ranks that share a model.", {at_least(1)}),
      integer("max_train_batch_size", nullptr, "The greatest train_batch_size."),
      integer("min_train_batch_size", 1, "The least train_batch_size."),
      integer("max_train_micro_batch_size_per_gpu", 1024, "The greatest micro batch size."),
      integer("min_train_micro_batch_size_per_gpu", 1, "The least micro batch size."),
      integer("num_tuning_micro_batch_sizes", 3, "Micro batch sizes that are tried."),
  };
}

}  // namespace deepspeed::config
