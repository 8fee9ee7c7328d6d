#include "deepspeed/config/later_sections.h"

namespace deepspeed::config {
namespace {

Field file_monitor(const char* key, const char* meaning) {
  return section(key, meaning,
                 {
                     enabled_switch(),
                     text("output_path", "", "The folder."),
                     text("job_name", "DeepSpeedJobName", "The folder in it."),
                 },
                 {auto_means_default()});
}

Field wandb() {
  return section("wandb", "Scalars to Weights & Biases.",
                 {
                     enabled_switch(),
                     text("group", nullptr, "The group of the run."),
                     text("team", nullptr, "The team of the run."),
                     text("project", "deepspeed", "The project of the run."),
                 },
                 {auto_means_default()});
}

Field comet() {
  return section("comet", "Scalars to Comet.",
                 {
                     enabled_switch(),
                     integer("samples_log_interval", 100, "Samples between two entries.", {at_least(1)}),
                     text("project", nullptr, "The project."),
                     text("workspace", nullptr, "The workspace."),
                     text("api_key", nullptr, "The key of the account."),
                     text("experiment_name", nullptr, "The experiment's name."),
                     text("experiment_key", nullptr, "The experiment's key."),
                     boolean("online", nullptr, "Log over the network, not to disk."),
                     text("mode", nullptr, "Continue an experiment or begin one.",
                          {one_of({"get", "create", "get_or_create"})}),
                 },
                 {auto_means_default()});
}

Field flops_profiler() {
  return section(
      "flops_profiler", "The cost of a step, layer by layer.",
      {
          enabled_switch(),
          number("recompute_fwd_factor", 0.0, "The part of forward that backward runs again.", {at_least(0)}),
          integer("profile_step", 1, "The step that is profiled."),
          integer("module_depth", -1, "Levels of modules that are shown; -1: to the innermost."),
          integer("top_modules", 1, "Modules shown a level."),
          boolean("detailed", true, "Show the whole model."),
          text("output_file", nullptr, "Where it is written; null: standard output."),
      });
}

Field comms_logger() {
  return section("comms_logger", "Sizes and times of collectives.",
                 {
                     enabled_switch(),
                     boolean("verbose", false, "Log each call."),
                     boolean("prof_all", true, "Watch all operations."),
                     boolean("debug", false, "Show who called."),
                     strings("prof_ops", Json::array(), "The operations that are watched."),
                 },
                 {auto_means_default()});
}

Field timers() {
  return section("timers", "Timers.",
                 {section("throughput", "Samples a second.",
                          {
                              boolean("enabled", true, "Measure it."),
                              boolean("synchronized", true, "Wait for the device at each reading."),
                          },
                          {auto_means_default()})});
}

Field nebula() {
  return section("nebula", "Checkpoints through the Nebula service.",
                 {
                     enabled_switch(),
                     text("nebula_load_path", nullptr, "Where checkpoints are loaded from."),
                     boolean("enable_nebula_load", true, "Load through the service."),
                     text("persistent_storage_path", nullptr, "Where they are kept."),
                     integer("persistent_time_interval", 100, "Seconds between two that are kept."),
                     integer("num_of_version_in_retention", 2, "How many are kept."),
                 });
}

}  // namespace

std::vector<Field> later_monitor_sections() {
  return {
      file_monitor("tensorboard", "Scalars to TensorBoard."),
      file_monitor("csv_monitor", "Scalars to CSV files."),
      wandb(),
      comet(),
      flops_profiler(),
      comms_logger(),
      timers(),
      nebula(),
      any("datastates_ckpt", false, "Checkpoints through DataStates; any value but false turns it on.",
          {not_yet()}),
  };
}

}  // namespace deepspeed::config
