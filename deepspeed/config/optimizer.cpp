#include "deepspeed/config/optimizer.h"

namespace deepspeed::config {

const Table<OptimizerConfig>& optimizer_table() {
  using C = OptimizerConfig;
  static const Table<C> table({
      entry("type", &C::type, "The optimizer's name: Adam, AdamW, Adagrad, Lamb, Lion, SGD, ..."),
      entry("params", &C::params, "The arguments of the optimizer: lr, betas, eps, weight_decay, ..."),
      entry("legacy_fusion", &C::legacy_fusion, "The former way of fusing the float16 step.",
            {without_effect("the step is fused in one way, with the same result")}),
  });
  return table;
}

const Table<SchedulerConfig>& scheduler_table() {
  using C = SchedulerConfig;
  static const Table<C> table({
      entry("type", &C::type,
            "The schedule's name: WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest."),
      entry("params", &C::params, "The arguments of the schedule."),
  });
  return table;
}

}  // namespace deepspeed::config
