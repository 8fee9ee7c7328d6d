// deepspeed.ops: the fused operators as functions of tensors.
#include "deepspeed/ops/functional.h"

#include <optional>
#include <string>
#include <utility>

#include <pybind11/stl.h>

#include "deepspeed/base/error.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"

namespace deepspeed::python {
namespace {

using ops::OptionalTensor;

ops::Reduction reduction_of(const std::string& name) {
  if (name == "mean") return ops::Reduction::kMean;
  if (name == "sum") return ops::Reduction::kSum;
  if (name == "none") return ops::Reduction::kNone;
  raise<UsageError>("reduction is '", name, "', expected 'mean', 'sum' or 'none'");
}

ops::RotaryPairs rotary_pairs_of(const std::string& name) {
  if (name == "halves") return ops::RotaryPairs::kHalves;
  if (name == "neighbours") return ops::RotaryPairs::kNeighbours;
  raise<UsageError>("pairs is '", name, "', expected 'halves' or 'neighbours'");
}

std::pair<at::Tensor, at::Tensor> rotary_tables(int64_t positions, int64_t rotary, double base,
                                                const at::Device& device, int64_t first_position,
                                                at::ScalarType dtype) {
  const ops::RotaryTables tables = ops::rotary_tables(positions, rotary, base, device, first_position, dtype);
  return {tables.cos, tables.sin};
}

at::Tensor rotary_embedding(const at::Tensor& input, const at::Tensor& cos, const at::Tensor& sin,
                            const std::string& pairs) {
  return ops::rotary_embedding(input, cos, sin, rotary_pairs_of(pairs));
}

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& targets,
                                const OptionalTensor& bias, int64_t ignore_index, double label_smoothing,
                                const std::string& reduction, bool gradients_in_forward, int64_t chunk_rows) {
  return ops::linear_cross_entropy(hidden, weight, targets, bias,
                                   {.ignore_index = ignore_index,
                                    .label_smoothing = label_smoothing,
                                    .reduction = reduction_of(reduction),
                                    .gradients_in_forward = gradients_in_forward,
                                    .chunk_rows = chunk_rows});
}

at::Tensor swiglu(const at::Tensor& gate, const OptionalTensor& up) {
  return up ? ops::swiglu(gate, *up) : ops::swiglu(gate);
}

}  // namespace

void bind_ops(py::module_& module) {
  module.def("layer_norm", &ops::layer_norm, NoGil(), "input"_a, "weight"_a, "bias"_a, "eps"_a);
  module.def("add_layer_norm", &ops::add_layer_norm, NoGil(), "input"_a, "residual"_a, "weight"_a, "bias"_a,
             "eps"_a);
  module.def("rms_norm", &ops::rms_norm, NoGil(), "input"_a, "weight"_a, "eps"_a);
  module.def("add_rms_norm", &ops::add_rms_norm, NoGil(), "input"_a, "residual"_a, "weight"_a, "eps"_a);
  module.def("bias_gelu", &ops::bias_gelu, NoGil(), "input"_a, "bias"_a);
  module.def("swiglu", &swiglu, NoGil(), "gate"_a, "up"_a);
  module.def("dropout", &ops::dropout, NoGil(), "input"_a, "ratio"_a, "training"_a);
  module.def("bias_dropout_residual", &ops::bias_dropout_residual, NoGil(), "input"_a, "bias"_a, "residual"_a,
             "ratio"_a, "training"_a);
  module.def("masked_softmax", &ops::masked_softmax, NoGil(), "scores"_a, "mask"_a, "scale"_a);
  module.def("rotary_tables", &rotary_tables, NoGil(), "positions"_a, "rotary"_a, "base"_a, "device"_a,
             "first_position"_a, "dtype"_a);
  module.def("rotary_embedding", &rotary_embedding, NoGil(), "input"_a, "cos"_a, "sin"_a, "pairs"_a);
  module.def("embedding", &ops::embedding, NoGil(), "weight"_a, "indices"_a, "padding_index"_a);
  module.def("linear_cross_entropy", &linear_cross_entropy, NoGil(), "hidden"_a, "weight"_a, "targets"_a,
             "bias"_a, "ignore_index"_a, "label_smoothing"_a, "reduction"_a, "gradients_in_forward"_a,
             "chunk_rows"_a);
}

}  // namespace deepspeed::python
