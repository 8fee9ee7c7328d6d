// The section progressive_layer_drop.
#pragma once

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// Layers left out at random, more as training goes.
struct ProgressiveLayerDropConfig {
  bool enabled = false;
  double theta = 1.0;
  double gamma = 0.001;
};

const Table<ProgressiveLayerDropConfig>& progressive_layer_drop_table();

}  // namespace deepspeed::config
