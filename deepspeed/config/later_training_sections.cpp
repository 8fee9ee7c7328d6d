#include "deepspeed/config/later_sections.h"

namespace deepspeed::config {
namespace {

Field elasticity() {
  return section(
      "elasticity", "Batch sizes that fit many numbers of devices.",
      {
          enabled_switch(),
          integer("max_train_batch_size", 2000, "The greatest train_batch_size.", {at_least(1)}),
          integers("micro_batch_sizes", Json::array({2, 4, 6}), "The micro batch sizes to choose from."),
          integer("min_gpus", 1, "The fewest devices.", {at_least(1)}),
          integer("max_gpus", 10000, "The most devices.", {at_least(1)}),
          integer("num_gpus_per_node", 1, "Devices of a node.", {at_least(1)}),
          integer("model_parallel_size", 1, "Ranks that share a model.", {at_least(1)}),
          integer("min_time", 0, "Minutes until the number of devices may change again.", {at_least(0)}),
          boolean("prefer_larger_batch", true, "Of batch sizes that fit as well, the larger."),
          boolean("ignore_non_elastic_batch_info", false, "Accept batch keys beside the section."),
          number("version", 0.2, "The version of the rules.", {above(0)}),
      });
}

Field autotuning() {
  return section(
      "autotuning", "A search for the fastest config.",
      {
          enabled_switch(),
          boolean("fast", true, "Search micro batch sizes and stages alone."),
          text("results_dir", "autotuning_results", "Where results go."),
          text("exps_dir", "autotuning_exps", "Where experiments go."),
          boolean("overwrite", true, "Run experiments again."),
          integer("start_profile_step", 3, "The first step that is measured."),
          integer("end_profile_step", 5, "The last step that is measured."),
          text("metric", "throughput", "What is compared.",
               {one_of({"throughput", "latency", "flops", "forward", "step"})}),
          text("metric_path", nullptr, "Where the metric is written."),
          section("model_info", "What is known of the model.",
                  {
                      boolean("profile", false, "Measure it."),
                      integer("num_params", nullptr, "Parameters."),
                      integer("hidden_size", nullptr, "The width."),
                      integer("num_layers", nullptr, "The depth."),
                  },
                  {or_null()}),
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
      });
}

Field eigenvalue() {
  return section("eigenvalue", "The greatest eigenvalue of each layer's Hessian.",
                 {
                     enabled_switch(),
                     boolean("verbose", false, "Log each one."),
                     integer("max_iter", 100, "The most iterations."),
                     number("tol", 1e-2, "The change that ends them."),
                     number("stability", 1e-6, "Added to a divisor."),
                     integer("gas_boundary_resolution", 1, "Steps between two computations."),
                     text("layer_name", "bert.encoder.layer", "The name of the layers."),
                     integer("layer_num", 0, "How many there are."),
                 });
}

Field progressive_layer_drop() {
  return section("progressive_layer_drop", "Layers left out at random, more as training goes.",
                 {
                     boolean("enabled", false, "Turns the section on.", {required(), not_yet()}),
                     number("theta", 1.0, "The part of the layers that stays."),
                     number("gamma", 0.001, "How fast it falls there."),
                 });
}

/// The keys that a curriculum has wherever it stands.
std::vector<Field> curriculum_schedule() {
  return {
      integer("min_difficulty", nullptr, "The difficulty at the start."),
      integer("max_difficulty", nullptr, "The difficulty at the end."),
      text("schedule_type", nullptr, "How it grows.",
           {one_of({"fixed_discrete", "fixed_root", "fixed_linear", "custom"})}),
      object("schedule_config", nullptr,
             "The arguments of that: total_curriculum_step, difficulty_step, ..."),
  };
}

Field curriculum_learning() {
  std::vector<Field> keys = {enabled_switch(), text("curriculum_type", nullptr, "What grows: seqlen.")};
  for (const Field& field : curriculum_schedule()) keys.push_back(field);
  return section("curriculum_learning", "Easy samples first, the older form.", keys);
}

Field data_sampling() {
  return section(
      "data_sampling", "Which samples come when.",
      {
          enabled_switch(),
          integer("num_epochs", 1000, "The most epochs.", {at_least(1)}),
          integer("num_workers", 0, "Processes that load.", {at_least(0)}),
          boolean("pin_memory", false, "Load into page-locked memory."),
          section(
              "curriculum_learning", "Easy samples first.",
              {
                  enabled_switch(),
                  text("data_cluster_path", nullptr, "Where clusters are kept."),
                  object("curriculum_metrics", nullptr, "By name: the files, type and schedule of a metric."),
              }),
          section("dynamic_batching", "Batches of so many tokens.",
                  {
                      enabled_switch(),
                      text("metrics_path", nullptr, "Where the lengths are."),
                      text("lr_scaling_method", "linear", "How the learning rate follows the batch.",
                           {one_of({"linear", "sqrt", "none"})}),
                      integer("min_batch_size", 1, "The least samples.", {at_least(1)}),
                      integer("max_batch_size", nullptr, "The most samples."),
                      text("sequence_picking_order", "dataloader", "The order of the samples.",
                           {one_of({"dataloader", "random", "seqlen"})}),
                      integer("max_tokens", nullptr, "The most tokens."),
                      boolean("verbose", false, "Log the batches."),
                  }),
      });
}

Field data_routing() {
  return section(
      "data_routing", "Which tokens pass which layers.",
      {
          enabled_switch(),
          section("random_ltd", "Layers that see some of the tokens.",
                  {
                      enabled_switch(),
                      integer("total_layer_num", nullptr, "Layers of the model."),
                      integer("random_ltd_layer_num", nullptr, "Layers that drop."),
                      integers("random_ltd_layer_id", nullptr, "Their indices."),
                      text("model_mask_name", nullptr, "The argument that holds the mask."),
                      text("model_type", nullptr, "encoder or decoder."),
                      text("hidden_state_order", nullptr, "The order of the axes."),
                      section("random_ltd_schedule", "How many tokens stay.",
                              {
                                  integer("min_value", nullptr, "At the start."),
                                  integer("max_value", nullptr, "At the end."),
                                  text("schedule_type", nullptr, "How it grows.", {one_of({"fixed_linear"})}),
                                  section("schedule_config", "The arguments of that.",
                                          {
                                              integer("require_steps", nullptr, "Steps of the growth."),
                                              integer("seq_per_step", nullptr, "Tokens of one step of it."),
                                          }),
                              }),
                      section("layer_token_lr_schedule", "A learning rate by tokens seen.",
                              {enabled_switch()}, {keeps_unknown_keys()}),
                  }),
      });
}

Field data_efficiency() {
  return section("data_efficiency", "Less data for the same quality.",
                 {enabled_switch(), integer("seed", 1234, "Of the choice of samples."), data_sampling(),
                  data_routing()});
}

}  // namespace

std::vector<Field> later_training_sections() {
  return {elasticity(),          autotuning(),     eigenvalue(), progressive_layer_drop(),
          curriculum_learning(), data_efficiency()};
}

}  // namespace deepspeed::config
