// One of the layers of a pipeline's stage.
#pragma once

#include <string>

#include "deepspeed/pipe/module/layer.h"

namespace deepspeed::pipe {

/// A layer that this rank has built.
struct StageLayer {
  int index = 0;       // in the model
  std::string prefix;  // of its parameters' names: "3", "tied_modules.embed"
  Layer layer;
  std::string tied_key = {};    // empty: not tied
  bool has_forward_fn = false;  // of a tied layer
};

}  // namespace deepspeed::pipe
