#include "tests/simulated_cuda/tables/op_kernels.h"

#include <cstdint>
#include <vector>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "deepspeed/kernels/cpu/ops/op_kernels.h"

#include "tests/simulated_cuda/tables/pointer_launch.h"

namespace deepspeed::kernels {
namespace {

size_t wide_bytes(ElementType type) { return type == ElementType::kFloat64 ? 8 : 4; }

size_t bytes_of_rows(const RowParts& rows, ElementType type) {
  return static_cast<size_t>(rows.rows * rows.columns) * bytes_of(type);
}

size_t bytes_of_parts(const RowParts& rows, ElementType type) {
  return static_cast<size_t>(rows.parts * rows.columns) * wide_bytes(type);
}

template <class Arrays>
void compute(const Arrays& arrays) {
  run_cpu(arrays);
}

/// The device's kernel adds to wide rows; the CPU's writes them in the type of the gradients.
void compute(const EmbeddingGradientArrays& arrays) {
  const auto count = static_cast<size_t>(arrays.num_embeddings * arrays.dim);
  if (arrays.type == ElementType::kFloat32 || arrays.type == ElementType::kFloat64) {
    return run_cpu(arrays);
  }
  std::vector<uint16_t> rounded(count);
  EmbeddingGradientArrays narrow = arrays;
  narrow.grad_weight = rounded.data();
  run_cpu(narrow);
  auto* const wide = static_cast<float*>(arrays.grad_weight);
  for (size_t i = 0; i < count; ++i) {
    wide[i] = arrays.type == ElementType::kFloat16
                  ? static_cast<float>(c10::Half(rounded[i], c10::Half::from_bits()))
                  : static_cast<float>(c10::BFloat16(rounded[i], c10::BFloat16::from_bits()));
  }
}

template <class T, class W>
void sum_parts(const void* given, void* sums, int64_t num_parts, int64_t columns) {
  const W* const parts = static_cast<const W*>(given);
  for (int64_t column = 0; column < columns; ++column) {
    W sum = 0;
    for (int64_t part = 0; part < num_parts; ++part) sum += parts[part * columns + column];
    static_cast<T*>(sums)[column] = static_cast<T>(sum);
  }
}

void compute(const PartSumsArrays& a) {
  auto* const sum = a.type == ElementType::kFloat64   ? &sum_parts<double, double>
                    : a.type == ElementType::kFloat32 ? &sum_parts<float, float>
                    : a.type == ElementType::kFloat16 ? &sum_parts<c10::Half, float>
                                                      : &sum_parts<c10::BFloat16, float>;
  for (int i = 0; i < 2; ++i) {
    if (a.parts[i] != nullptr) sum(a.parts[i], a.sums[i], a.num_parts, a.columns);
  }
}

// Each launch_of() returns a launch that lists what a kernel reads and writes. It replaces the device
// addresses in the arrays by addresses of their bytes.

PointerLaunch launch_of(NormArrays& arrays) {
  const auto rows = static_cast<size_t>(arrays.rows), columns = static_cast<size_t>(arrays.columns);
  const size_t bytes = rows * columns * bytes_of(arrays.type),
               parameter = columns * bytes_of(arrays.parameter_type);
  PointerLaunch launch("kernels::norm");
  launch.reads(arrays.input, bytes);
  launch.reads(arrays.residual, bytes);
  launch.reads(arrays.weight, parameter);
  launch.reads(arrays.bias, parameter);
  launch.writes(arrays.output, bytes);
  launch.writes(arrays.sum, bytes);
  launch.writes(arrays.mean, rows * wide_bytes(arrays.type));
  launch.writes(arrays.rstd, rows * wide_bytes(arrays.type));
  return launch;
}

PointerLaunch launch_of(NormBackwardArrays& arrays) {
  const size_t bytes = bytes_of_rows(arrays.rows, arrays.type),
               parts = bytes_of_parts(arrays.rows, arrays.type);
  const size_t statistic = static_cast<size_t>(arrays.rows.rows) * wide_bytes(arrays.type);
  const size_t parameter = static_cast<size_t>(arrays.rows.columns) * bytes_of(arrays.parameter_type);
  PointerLaunch launch("kernels::norm_backward");
  for (const void** read : {&arrays.grad_output, &arrays.grad_sum, &arrays.sum, &arrays.output}) {
    launch.reads(*read, bytes);
  }
  launch.reads(arrays.mean, statistic);
  launch.reads(arrays.rstd, statistic);
  launch.reads(arrays.weight, parameter);
  launch.reads(arrays.bias, parameter);
  launch.writes(arrays.grad_input, bytes);
  launch.writes(arrays.weight_parts, parts);
  launch.writes(arrays.bias_parts, parts);
  return launch;
}

PointerLaunch launch_of(PartSumsArrays& arrays) {
  const auto columns = static_cast<size_t>(arrays.columns);
  PointerLaunch launch("kernels::part_sums");
  for (int i = 0; i < 2; ++i) {
    launch.reads(arrays.parts[i], static_cast<size_t>(arrays.num_parts) * columns * wide_bytes(arrays.type));
    launch.writes(arrays.sums[i], columns * bytes_of(arrays.type));
  }
  return launch;
}

PointerLaunch launch_of(BiasGeluArrays& arrays) {
  const size_t bytes = bytes_of_rows(arrays.rows, arrays.type);
  PointerLaunch launch("kernels::bias_gelu");
  launch.reads(arrays.input, bytes);
  launch.reads(arrays.bias, static_cast<size_t>(arrays.rows.columns) * bytes_of(arrays.parameter_type));
  launch.reads(arrays.grad_output, bytes);
  launch.writes(arrays.output, bytes);
  launch.writes(arrays.bias_parts, bytes_of_parts(arrays.rows, arrays.type));
  return launch;
}

PointerLaunch launch_of(SwigluArrays& arrays) {
  const auto bytes_at = [&](int64_t stride) {
    return static_cast<size_t>((arrays.rows - 1) * stride + arrays.columns) * bytes_of(arrays.type);
  };
  PointerLaunch launch("kernels::swiglu");
  launch.reads(arrays.gate, bytes_at(arrays.gate_stride));
  launch.reads(arrays.up, bytes_at(arrays.up_stride));
  launch.reads(arrays.grad_output, bytes_at(arrays.columns));
  launch.writes(arrays.output, bytes_at(arrays.columns));
  launch.writes(arrays.grad_gate, bytes_at(arrays.grad_gate_stride));
  launch.writes(arrays.grad_up, bytes_at(arrays.grad_up_stride));
  return launch;
}

PointerLaunch launch_of(DropoutArrays& arrays) {
  const size_t bytes = bytes_of_rows(arrays.rows, arrays.type);
  PointerLaunch launch("kernels::dropout");
  launch.reads(arrays.input, bytes);
  launch.reads(arrays.bias, static_cast<size_t>(arrays.rows.columns) * bytes_of(arrays.parameter_type));
  launch.reads(arrays.residual, bytes);
  launch.writes(arrays.output, bytes);
  launch.writes(arrays.bias_parts, bytes_of_parts(arrays.rows, arrays.type));
  return launch;
}

PointerLaunch launch_of(MaskedSoftmaxArrays& arrays) {
  const size_t bytes = static_cast<size_t>(arrays.rows * arrays.columns) * bytes_of(arrays.type);
  int64_t mask_numel = arrays.columns;
  for (int dim = 0; dim < arrays.mask_dims; ++dim) {
    mask_numel += (arrays.mask_sizes[dim] - 1) * arrays.mask_strides[dim];
  }
  PointerLaunch launch("kernels::masked_softmax");
  launch.reads(arrays.scores, bytes);
  launch.reads(arrays.mask, static_cast<size_t>(mask_numel) * bytes_of(arrays.mask_type));
  launch.writes(arrays.output, bytes);
  return launch;
}

PointerLaunch launch_of(SoftmaxBackwardArrays& arrays) {
  const size_t bytes = static_cast<size_t>(arrays.rows * arrays.columns) * bytes_of(arrays.type);
  PointerLaunch launch("kernels::softmax_backward");
  launch.reads(arrays.grad_output, bytes);
  launch.reads(arrays.output, bytes);
  launch.writes(arrays.grad_input, bytes);
  return launch;
}

PointerLaunch launch_of(RotaryArrays& arrays) {
  const auto heads_bytes = [&](const int64_t(&strides)[3]) {
    const int64_t last = (arrays.batch - 1) * strides[0] + (arrays.heads - 1) * strides[1] +
                         (arrays.positions - 1) * strides[2];
    return static_cast<size_t>(last + arrays.dim) * bytes_of(arrays.type);
  };
  const int64_t table =
      (arrays.batch - 1) * arrays.table_batch_stride + arrays.positions * (arrays.rotary / 2);
  const size_t table_bytes = static_cast<size_t>(table) * bytes_of(arrays.table_type);
  PointerLaunch launch("kernels::rotary");
  launch.reads(arrays.input, heads_bytes(arrays.input_strides));
  launch.reads(arrays.cos, table_bytes);
  launch.reads(arrays.sin, table_bytes);
  launch.writes(arrays.output, heads_bytes(arrays.output_strides));
  return launch;
}

PointerLaunch launch_of(CrossEntropyArrays& arrays) {
  const auto rows = static_cast<size_t>(arrays.rows);
  PointerLaunch launch("kernels::cross_entropy");
  launch.writes(arrays.logits, rows * static_cast<size_t>(arrays.columns) * bytes_of(arrays.type));
  launch.reads(arrays.targets, rows * sizeof(int64_t));
  launch.reads(arrays.row_gradients, rows * wide_bytes(arrays.type));
  launch.writes(arrays.losses, rows * wide_bytes(arrays.type));
  return launch;
}

PointerLaunch launch_of(EmbeddingGradientArrays& arrays) {
  const auto positions = static_cast<size_t>(arrays.positions), dim = static_cast<size_t>(arrays.dim);
  PointerLaunch launch("kernels::embedding_gradient");
  launch.reads(arrays.grad_output, positions * dim * bytes_of(arrays.type));
  launch.reads(arrays.indices, positions * sizeof(int64_t));
  launch.writes(arrays.grad_weight,
                static_cast<size_t>(arrays.num_embeddings) * dim * wide_bytes(arrays.type));
  return launch;
}

template <class Arrays>
const char* launch_simulated(int device, const Arrays& given) {
  Arrays arrays = given;
  launch_of(arrays).run(device, [arrays] { compute(arrays); });
  return nullptr;
}

template <class... Arrays>
OpLaunches table_of(ArraysList<Arrays...>) {
  return {&launch_simulated<Arrays>...};
}

}  // namespace

OpLaunches simulated_ops() { return table_of(OpArrays()); }

}  // namespace deepspeed::kernels
