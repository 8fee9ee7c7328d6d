#include "deepspeed/config/tools/tables.h"

namespace deepspeed::config {
namespace {

const Table<ThroughputTimerConfig>& throughput_timer_table() {
  using C = ThroughputTimerConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Log it every steps_per_print steps."),
      entry("synchronized", &C::synchronized, "Wait for the device where one is logged."),
  });
  return table;
}

}  // namespace

const Table<FlopsProfilerConfig>& flops_profiler_table() {
  using C = FlopsProfilerConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {not_yet()}),
      entry("recompute_fwd_factor", &C::recompute_fwd_factor, "The part of forward that backward runs again.",
            {at_least(0)}),
      entry("profile_step", &C::profile_step, "The step that is profiled."),
      entry("module_depth", &C::module_depth, "Levels of modules that are shown; -1: to the innermost."),
      entry("top_modules", &C::top_modules, "Modules shown a level."),
      entry("detailed", &C::detailed, "Show the whole model."),
      entry("output_file", &C::output_file, "Where it is written; null: standard output."),
  });
  return table;
}

const Table<CommsLoggerConfig>& comms_logger_table() {
  using C = CommsLoggerConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on."),
      entry("verbose", &C::verbose, "Log each call."),
      entry("prof_all", &C::prof_all, "Watch all operations."),
      entry("debug", &C::debug, "Also log each call's subject, such as the parameter."),
      entry("prof_ops", &C::prof_ops, "The operations that are watched where prof_all is false."),
  });
  return table;
}

const Table<TimersConfig>& timers_table() {
  using C = TimersConfig;
  static const Table<C> table({
      section_entry("throughput", &C::throughput, throughput_timer_table(), "Samples a second.",
                    {auto_means_default()}),
  });
  return table;
}

}  // namespace deepspeed::config
