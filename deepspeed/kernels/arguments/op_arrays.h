// The arguments of fused operators for CPU and CUDA kernels: raw pointers and sizes.
//
// Arrays have the type `type`, unless their comment says otherwise. "Wide" means fp32, or fp64 for fp64
// arrays. A null pointer means that the array is not given. `backward` says which direction to compute, for
// operators whose two directions share a struct.
#pragma once

#include <cstdint>

#include "deepspeed/kernels/arguments/element_type.h"
#include "deepspeed/kernels/arguments/on_both.h"
#include "deepspeed/kernels/arguments/philox.h"

namespace deepspeed::kernels {

/// Divides rows into parts for sums over rows. Parts follow each other, begin at first_row(), and differ by
/// at most one row. The division depends only on sizes and the kind of device, so that sums have a fixed
/// order.
struct RowParts {
  int64_t rows = 0, columns = 0, parts = 1;
};

/// Returns the first row of a part.
DEEPSPEED_ON_BOTH constexpr int64_t first_row(const RowParts& parts, int64_t part) {
  return part * (parts.rows / parts.parts) +
         (part < parts.rows % parts.parts ? part : parts.rows % parts.parts);
}

struct NormArrays {
  const void *input = nullptr, *residual = nullptr;
  const void *weight = nullptr, *bias = nullptr;  // [columns], of parameter_type
  void *output = nullptr, *sum = nullptr;         // `sum` is written if `residual` is given
  void *mean = nullptr, *rstd = nullptr;          // wide; RMS norm has no mean
  int64_t rows = 0, columns = 0;
  double eps = 0;
  ElementType type = ElementType::kFloat32, parameter_type = ElementType::kFloat32;
};

struct NormBackwardArrays {
  const void *grad_output = nullptr, *grad_sum = nullptr;
  const void *sum = nullptr, *output = nullptr;   // one of the two
  const void *mean = nullptr, *rstd = nullptr;    // wide; with `sum`, RMS norm has no mean
  const void *weight = nullptr, *bias = nullptr;  // of parameter_type; `bias` is used with `output`
  void* grad_input = nullptr;
  void *weight_parts = nullptr, *bias_parts = nullptr;  // wide [parts, columns]
  RowParts rows;
  bool is_rms = false;
  ElementType type = ElementType::kFloat32, parameter_type = ElementType::kFloat32;
};

/// Points to one or two arrays of partial sums, and to arrays for the totals.
struct PartSumsArrays {
  const void* parts[2] = {};  // wide [num_parts, columns]
  void* sums[2] = {};         // [columns]
  int64_t num_parts = 0, columns = 0;
  ElementType type = ElementType::kFloat32;  // of the sums
};

struct BiasGeluArrays {
  const void *input = nullptr, *bias = nullptr;  // `bias` [columns], of parameter_type
  const void* grad_output = nullptr;             // for backward
  void* output = nullptr;                        // in backward: gradient of the input
  void* bias_parts = nullptr;                    // wide [parts, columns], for backward
  RowParts rows;
  bool backward = false;
  ElementType type = ElementType::kFloat32, parameter_type = ElementType::kFloat32;
};

/// Points to arrays of rows. The strides are the distances of rows in elements; arrays without one are
/// contiguous.
struct SwigluArrays {
  const void *gate = nullptr, *up = nullptr, *grad_output = nullptr;
  void *output = nullptr, *grad_gate = nullptr, *grad_up = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t gate_stride = 0, up_stride = 0, grad_gate_stride = 0, grad_up_stride = 0;
  bool backward = false;
  ElementType type = ElementType::kFloat32;
};

struct DropoutArrays {
  const void *input = nullptr, *bias = nullptr, *residual = nullptr;  // `bias` [columns], of parameter_type
  void* output = nullptr;                                             // may be `input`
  void* bias_parts = nullptr;  // wide [parts, columns]: sums of the output, for backward
  RowParts rows;
  Philox philox;
  uint64_t threshold = 0;  // dropout_threshold(); 0 draws nothing
  double scale = 1;        // of kept elements
  ElementType type = ElementType::kFloat32, parameter_type = ElementType::kFloat32;
};

inline constexpr int kMaxMaskDims = 5;

struct MaskedSoftmaxArrays {
  const void* scores = nullptr;
  const void* mask = nullptr;  // of mask_type
  void* output = nullptr;      // may be `scores`
  int64_t rows = 0, columns = 0;
  double scale = 1;
  // Row r has an index in each leading dimension, the last one varying fastest. The mask's row starts at the
  // sum of index * stride.
  int mask_dims = 0;
  int64_t mask_sizes[kMaxMaskDims] = {}, mask_strides[kMaxMaskDims] = {};
  ElementType type = ElementType::kFloat32, mask_type = ElementType::kFloat32;
};

/// Returns the offset, in elements, of the mask's row for a row of scores.
DEEPSPEED_ON_BOTH constexpr int64_t mask_offset(const MaskedSoftmaxArrays& a, int64_t row) {
  int64_t offset = 0;
  for (int dim = a.mask_dims - 1; dim >= 0; --dim) {
    offset += row % a.mask_sizes[dim] * a.mask_strides[dim];
    row /= a.mask_sizes[dim];
  }
  return offset;
}

struct SoftmaxBackwardArrays {
  const void *grad_output = nullptr, *output = nullptr;
  void* grad_input = nullptr;  // may be `grad_output`
  int64_t rows = 0, columns = 0;
  double scale = 1;
  ElementType type = ElementType::kFloat32;
};

/// Points to heads [batch, heads, positions, dim] with strides in elements. A head's elements are contiguous.
struct RotaryArrays {
  const void* input = nullptr;
  void* output = nullptr;
  const void *cos = nullptr, *sin = nullptr;  // [positions, rotary / 2], of table_type
  int64_t batch = 0, heads = 0, positions = 0, dim = 0, rotary = 0;
  int64_t input_strides[3] = {}, output_strides[3] = {};
  int64_t table_batch_stride = 0;
  bool neighbours = false, backward = false;
  ElementType type = ElementType::kFloat32, table_type = ElementType::kFloat32;
};

struct CrossEntropyArrays {
  void* logits = nullptr;               // [rows, columns]; with row_gradients also the output, their gradient
  const int64_t* targets = nullptr;     // [rows]
  const void* row_gradients = nullptr;  // wide [rows]
  void* losses = nullptr;               // wide [rows]
  int64_t rows = 0, columns = 0;
  int64_t ignore_index = 0;
  double label_smoothing = 0;
  ElementType type = ElementType::kFloat32;
};

struct EmbeddingGradientArrays {
  const void* grad_output = nullptr;  // [positions, dim]
  const int64_t* indices = nullptr;   // [positions]
  void* grad_weight = nullptr;        // [num_embeddings, dim]; on CUDA wide, and zeroed
  int64_t positions = 0, dim = 0, num_embeddings = 0, padding_index = -1;
  ElementType type = ElementType::kFloat32;
};

/// Lists the types of argument structs.
template <class... Arrays>
struct ArraysList {};

/// Lists the fused operators. A kernel is selected by the type of its arrays. Launch functions and the table
/// of kernels follow from this list.
using OpArrays = ArraysList<NormArrays, NormBackwardArrays, PartSumsArrays, BiasGeluArrays, SwigluArrays,
                            DropoutArrays, MaskedSoftmaxArrays, SoftmaxBackwardArrays, RotaryArrays,
                            CrossEntropyArrays, EmbeddingGradientArrays>;

}  // namespace deepspeed::kernels
