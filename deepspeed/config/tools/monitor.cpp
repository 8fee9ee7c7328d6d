#include "deepspeed/config/tools/tables.h"

namespace deepspeed::config {

namespace {

/// The Python package has torch's writer and the services' clients; it keeps these sections to itself.
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

const Table<WandbConfig>& wandb_table() {
  using C = WandbConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {from_python_alone()}),
      entry("group", &C::group, "The group of the run."),
      entry("team", &C::team, "The team of the run."),
      entry("project", &C::project, "The project of the run."),
  });
  return table;
}

const Table<CometConfig>& comet_table() {
  using C = CometConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {from_python_alone()}),
      entry("samples_log_interval", &C::samples_log_interval, "Samples between two entries.", {at_least(1)}),
      entry("project", &C::project, "The project."),
      entry("workspace", &C::workspace, "The workspace."),
      entry("api_key", &C::api_key, "The key of the account."),
      entry("experiment_name", &C::experiment_name, "The experiment's name."),
      entry("experiment_key", &C::experiment_key, "The experiment's key."),
      entry("online", &C::online, "Log over the network, not to disk."),
      entry("mode", &C::mode, "Continue an experiment or begin one.",
            {one_of({"get", "create", "get_or_create"})}),
  });
  return table;
}

const Table<NebulaConfig>& nebula_table() {
  using C = NebulaConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {not_yet()}),
      entry("nebula_load_path", &C::nebula_load_path, "Where checkpoints are loaded from."),
      entry("enable_nebula_load", &C::enable_nebula_load, "Load through the service."),
      entry("persistent_storage_path", &C::persistent_storage_path, "Where they are kept."),
      entry("persistent_time_interval", &C::persistent_time_interval, "Seconds between two that are kept."),
      entry("num_of_version_in_retention", &C::num_of_version_in_retention, "How many are kept."),
  });
  return table;
}

}  // namespace deepspeed::config
