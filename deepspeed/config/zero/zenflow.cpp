#include "deepspeed/config/zero/tables.h"

namespace deepspeed::config {

const Table<ZenflowConfig>& zenflow_table() {
  using C = ZenflowConfig;
  static const Table<C> table({
      entry("topk_ratio", &C::topk_ratio, "The part of the gradients that counts as important.",
            {strictly_between(0, 1)}),
      entry("select_strategy", &C::select_strategy, "When the important ones are selected anew.",
            {one_of({"auto", "step", "epoch"})}),
      any_entry("select_interval", &C::select_interval, "Steps or epochs between two selections."),
      any_entry("update_interval", &C::update_interval, "Steps between two updates of the others."),
      entry("overlap_step", &C::overlap_step, "Overlap the host's step with the device's work."),
      entry("offload", &C::offload, "Keep the selected optimizer state on the host."),
      entry("auto_ratio", &C::auto_ratio, "The threshold of the automatic update interval.", {between(0, 1)}),
      entry("full_warm_up_rounds", &C::full_warm_up_rounds, "Steps at the start that update everything.",
            {at_least(0)}),
      entry("pt_reserved_cores_perc", &C::pt_reserved_cores_perc, "The part of the cores left to PyTorch.",
            {between(0, 1)}),
      entry("steps_per_epoch", &C::steps_per_epoch, "Steps of one epoch."),
  });
  return table;
}

}  // namespace deepspeed::config
