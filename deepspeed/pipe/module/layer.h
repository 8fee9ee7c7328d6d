// A stage of a pipeline runs layers of this form, whatever front end they come from: a function over a list
// of tensors, and the parameters that it uses.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/engine/model/model.h"

namespace deepspeed::pipe {

/// What goes from one layer to the next: outputs of the one, inputs of the other. Any dtype; a tensor that
/// needs no gradient, such as one of integers, gets none.
using Tensors = std::vector<at::Tensor>;
using TensorFunction = std::function<Tensors(const Tensors&)>;

struct Layer {
  std::string class_name;  // as its language spells it: "torch::nn::LinearImpl"
  TensorFunction forward;
  EngineModel model;  // parameters and buffers by their names in the layer; of a function none
};

/// A layer that this rank has built.
struct StageLayer {
  int index = 0;       // in the model
  std::string prefix;  // of its parameters' names: "3", "tied_modules.embed"
  Layer layer;
  std::string tied_key = {};    // empty: not tied
  bool has_forward_fn = false;  // of a tied layer
};

}  // namespace deepspeed::pipe
