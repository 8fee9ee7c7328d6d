// The kernels of the fused operators over the simulated device, rows of the table of kernels.
#pragma once

#include "deepspeed/kernels/arguments/op_arrays.h"

namespace deepspeed::kernels::simulated_ops {

const char* launch_norm(int device, const NormArrays& arrays);
const char* launch_norm_backward(int device, const NormBackwardArrays& arrays);
const char* launch_part_sums(int device, const PartSumsArrays& arrays);
const char* launch_bias_gelu(int device, const BiasGeluArrays& arrays);
const char* launch_bias_gelu_backward(int device, const BiasGeluArrays& arrays);
const char* launch_swiglu(int device, const SwigluArrays& arrays);
const char* launch_swiglu_backward(int device, const SwigluArrays& arrays);
const char* launch_dropout(int device, const DropoutArrays& arrays);
const char* launch_masked_softmax(int device, const MaskedSoftmaxArrays& arrays);
const char* launch_softmax_backward(int device, const SoftmaxBackwardArrays& arrays);
const char* launch_rotary(int device, const RotaryArrays& arrays);
const char* launch_cross_entropy(int device, const CrossEntropyArrays& arrays);
const char* launch_embedding_gradient(int device, const EmbeddingGradientArrays& arrays);

}  // namespace deepspeed::kernels::simulated_ops
