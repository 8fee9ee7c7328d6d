#include "deepspeed/config/zero/tables.h"

namespace deepspeed::config {

std::vector<Field> zenflow_keys() {
  return {
      number("topk_ratio", 0.1, "The part of the gradients that counts as important.",
             {strictly_between(0, 1)}),
      text("select_strategy", "auto", "When the important ones are selected anew.",
           {one_of({"auto", "step", "epoch"})}),
      any("select_interval", "auto", "Steps or epochs between two selections."),
      any("update_interval", "auto", "Steps between two updates of the others."),
      boolean("overlap_step", false, "Overlap the host's step with the device's work."),
      boolean("offload", false, "Keep the selected optimizer state on the host."),
      number("auto_ratio", 0.99, "The threshold of the automatic update interval.", {between(0, 1)}),
      integer("full_warm_up_rounds", 0, "Steps at the start that update everything.", {at_least(0)}),
      number("pt_reserved_cores_perc", 0.5, "The part of the cores left to PyTorch.", {between(0, 1)}),
      integer("steps_per_epoch", nullptr, "Steps of one epoch."),
  };
}

}  // namespace deepspeed::config
