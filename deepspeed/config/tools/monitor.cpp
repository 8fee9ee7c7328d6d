#include "deepspeed/config/tools/tables.h"

namespace deepspeed::config {

namespace {

/// Refuses a section that only the Python package implements. The package has torch's writer and the
/// services' clients.
Option from_python_alone() {
  return never(
      "a program in C++ gives the engine a monitor of its own: engine->monitor().add(); from Python it "
      "works");
}

}  // namespace

const Table<FileMonitorConfig>& tensorboard_table() {
  using C = FileMonitorConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {from_python_alone()}),
      entry("output_path", &C::output_path, "The folder."),
      entry("job_name", &C::job_name, "The folder in it."),
  });
  return table;
}

const Table<FileMonitorConfig>& csv_monitor_table() {
  using C = FileMonitorConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on."),
      entry("output_path", &C::output_path, "The folder; that of the process where it is empty."),
      entry("job_name", &C::job_name, "The folder in it."),
  });
  return table;
}

std::vector<Field> wandb_keys() {
  return {
      boolean("enabled", false, "Turns the section on.", {from_python_alone()}),
      text("group", nullptr, "The group of the run."),
      text("team", nullptr, "The team of the run."),
      text("project", "deepspeed", "The project of the run."),
  };
}

std::vector<Field> comet_keys() {
  return {
      boolean("enabled", false, "Turns the section on.", {from_python_alone()}),
      integer("samples_log_interval", 100, "Samples between two entries.", {at_least(1)}),
      text("project", nullptr, "The project."),
      text("workspace", nullptr, "The workspace."),
      text("api_key", nullptr, "The key of the account."),
      text("experiment_name", nullptr, "The experiment's name."),
      text("experiment_key", nullptr, "The experiment's key."),
      boolean("online", nullptr, "Log over the network, not to disk."),
      text("mode", nullptr, "Continue an experiment or begin one.",
           {one_of({"get", "create", "get_or_create"})}),
  };
}

std::vector<Field> nebula_keys() {
  return {
      boolean("enabled", false, "Turns the section on.", {not_yet()}),
      text("nebula_load_path", nullptr, "Where checkpoints are loaded from."),
      boolean("enable_nebula_load", true, "Load through the service."),
      text("persistent_storage_path", nullptr, "Where they are kept."),
      integer("persistent_time_interval", 100, "Seconds between two that are kept."),
      integer("num_of_version_in_retention", 2, "How many are kept."),
  };
}

}  // namespace deepspeed::config
