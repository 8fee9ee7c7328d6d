#include "deepspeed/config/training/tables.h"

namespace deepspeed::config {

const Table<ProgressiveLayerDropConfig>& progressive_layer_drop_table() {
  using C = ProgressiveLayerDropConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {required()}),
      entry("theta", &C::theta, "The part of the layers that stays in the end, which get_pld_theta() tells."),
      entry("gamma", &C::gamma,
            "How fast it falls there: get_pld_theta() is (1 - theta) * exp(-gamma * step) + theta."),
  });
  return table;
}

}  // namespace deepspeed::config
