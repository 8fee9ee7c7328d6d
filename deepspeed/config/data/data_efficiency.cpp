#include "deepspeed/config/data/keys.h"

namespace deepspeed::config {
namespace {

std::vector<Field> data_curriculum_keys() {
  return {
      boolean("enabled", false, "Turns the section on.", {not_yet()}),
      text("data_cluster_path", nullptr, "Where clusters are kept."),
      object("curriculum_metrics", nullptr, "By name: the files, type and schedule of a metric."),
  };
}

std::vector<Field> dynamic_batching_keys() {
  return {
      boolean("enabled", false, "Turns the section on.", {not_yet()}),
      text("metrics_path", nullptr, "Where the lengths are.", {per_rank()}),
      text("lr_scaling_method", "linear", "How the learning rate follows the batch.",
           {one_of({"linear", "sqrt", "none"})}),
      integer("min_batch_size", 1, "The least samples.", {at_least(1)}),
      integer("max_batch_size", nullptr, "The most samples."),
      text("sequence_picking_order", "dataloader", "The order of the samples.",
           {one_of({"dataloader", "random", "seqlen"})}),
      integer("max_tokens", nullptr, "The most tokens."),
      boolean("verbose", false, "Log the batches.", {per_rank()}),
  };
}

std::vector<Field> data_sampling_keys() {
  return {
      boolean("enabled", false, "Turns the section on.", {not_yet()}),
      integer("num_epochs", 1000, "The most epochs.", {at_least(1)}),
      integer("num_workers", 0, "Processes that load.", {at_least(0), per_rank()}),
      boolean("pin_memory", false, "Load into page-locked memory.", {per_rank()}),
      section("curriculum_learning", "Easy samples first.", data_curriculum_keys()),
      section("dynamic_batching", "Batches of so many tokens.", dynamic_batching_keys()),
  };
}

std::vector<Field> random_ltd_growth_keys() {
  return {
      integer("require_steps", nullptr, "Steps of the growth."),
      integer("seq_per_step", nullptr, "Tokens of one step of it."),
  };
}

std::vector<Field> random_ltd_schedule_keys() {
  return {
      integer("min_value", nullptr, "At the start."),
      integer("max_value", nullptr, "At the end."),
      text("schedule_type", nullptr, "How it grows.", {one_of({"fixed_linear"})}),
      section("schedule_config", "The arguments of that.", random_ltd_growth_keys()),
  };
}

std::vector<Field> token_lr_schedule_keys() {
  return {
      boolean("enabled", false, "Turns the section on.", {not_yet()}),
  };
}

std::vector<Field> random_ltd_keys() {
  return {
      boolean("enabled", false, "Turns the section on.", {not_yet()}),
      integer("total_layer_num", nullptr, "Layers of the model."),
      integer("random_ltd_layer_num", nullptr, "Layers that drop."),
      integers("random_ltd_layer_id", nullptr, "Their indices."),
      text("model_mask_name", nullptr, "The argument that holds the mask."),
      text("model_type", nullptr, "encoder or decoder."),
      text("hidden_state_order", nullptr, "The order of the axes."),
      section("random_ltd_schedule", "How many tokens stay.", random_ltd_schedule_keys()),
      section("layer_token_lr_schedule", "A learning rate by tokens seen.", token_lr_schedule_keys(),
              {keeps_unknown_keys()}),
  };
}

std::vector<Field> data_routing_keys() {
  return {
      boolean("enabled", false, "Turns the section on.", {not_yet()}),
      section("random_ltd", "Layers that see some of the tokens.", random_ltd_keys()),
  };
}

}  // namespace

std::vector<Field> data_efficiency_keys() {
  return {
      boolean("enabled", false, "Turns the section on.", {not_yet()}),
      integer("seed", 1234, "Of the choice of samples."),
      section("data_sampling", "Which samples come when.", data_sampling_keys()),
      section("data_routing", "Which tokens pass which layers.", data_routing_keys()),
  };
}

std::vector<Field> curriculum_learning_keys() {
  return {
      boolean("enabled", false, "Turns the section on.", {not_yet()}),
      text("curriculum_type", nullptr, "What grows: seqlen."),
      integer("min_difficulty", nullptr, "The difficulty at the start."),
      integer("max_difficulty", nullptr, "The difficulty at the end."),
      text("schedule_type", nullptr, "How it grows.",
           {one_of({"fixed_discrete", "fixed_root", "fixed_linear", "custom"})}),
      object("schedule_config", nullptr,
             "The arguments of that: total_curriculum_step, difficulty_step, ..."),
  };
}

std::vector<Field> eigenvalue_keys() {
  return {
      boolean("enabled", false, "Turns the section on.", {not_yet()}),
      boolean("verbose", false, "Log each one."),
      integer("max_iter", 100, "The most iterations."),
      number("tol", 1e-2, "The change that ends them."),
      number("stability", 1e-6, "Added to a divisor."),
      integer("gas_boundary_resolution", 1, "Steps between two computations."),
      text("layer_name", "bert.encoder.layer", "The name of the layers."),
      integer("layer_num", 0, "How many there are."),
  };
}

}  // namespace deepspeed::config
