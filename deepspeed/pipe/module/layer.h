// The form of a layer that a stage runs, whatever front end it comes from: a function over a list of tensors,
// and the parameters that it uses.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/engine/model/model.h"

namespace deepspeed::pipe {

/// Holds what one layer passes to the next, of any dtypes. Backward computes no gradient for tensors that
/// require none, such as integers.
using Tensors = std::vector<at::Tensor>;
using TensorFunction = std::function<Tensors(const Tensors&)>;

struct Layer {
  std::string class_name;  // in the layer's language: "torch::nn::LinearImpl"
  TensorFunction forward;
  EngineModel model;  // parameters and buffers by their names in the layer; empty for a function
};

/// Holds a layer that this rank has built.
struct StageLayer {
  int index = 0;       // in the model
  std::string prefix;  // of its parameters' names: "3", "tied_modules.embed"
  Layer layer;
  std::string tied_key = {};    // empty: not tied
  bool has_forward_fn = false;  // a tied layer runs by a function of its own, not the module's forward
};

}  // namespace deepspeed::pipe
