#include "deepspeed/config/data/tables.h"

namespace deepspeed::config {

const Table<ProgressiveLayerDropConfig>& progressive_layer_drop_table() {
  using C = ProgressiveLayerDropConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {required(), not_yet()}),
      entry("theta", &C::theta, "The part of the layers that stays."),
      entry("gamma", &C::gamma, "How fast it falls there."),
  });
  return table;
}

}  // namespace deepspeed::config
