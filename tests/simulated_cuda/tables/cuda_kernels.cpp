// The kernels of deepspeed/kernels/cuda over the simulated device: given to the current stream, computed by
// the CPU's kernels.
#include <algorithm>
#include <cmath>
#include <variant>
#include <vector>

#include "deepspeed/kernels/cpu/cpu_kernels.h"
#include "deepspeed/kernels/cpu/messages/message_kernels.h"
#include "deepspeed/kernels/sign_compression.h"
#include "deepspeed/precision/loss_scaler.h"

#include "tests/simulated_cuda/tables/op_kernels.h"
#include "tests/simulated_cuda/tables/pointer_launch.h"
#include "tests/simulated_cuda/tables/tables.h"

namespace deepspeed::kernels {
namespace {

bool is_skipped(const double* scale) { return scale != nullptr && std::isnan(*scale); }

const char* launch_adam(int device, const AdamArrays& given, const AdamConstants& constants) {
  AdamArrays arrays = given;
  const auto n = static_cast<size_t>(arrays.numel);
  PointerLaunch launch("kernels::adam");
  launch.writes(arrays.master, n * (arrays.master_form == MasterForm::kFloat32 ? 4 : 2));
  launch.reads(arrays.gradient, n * bytes_of(arrays.gradient_type));
  launch.writes(arrays.exp_avg, n * bytes_of(arrays.moment_type));
  launch.writes(arrays.exp_avg_sq, n * bytes_of(arrays.moment_type));
  launch.writes(arrays.low_precision, n * 2);
  launch.reads(arrays.gradient_scale, sizeof(double));
  launch.run(device, [=] {
    if (is_skipped(arrays.gradient_scale)) return;
    AdamConstants scaled = constants;
    if (arrays.gradient_scale != nullptr) set_gradient_scale(scaled, *arrays.gradient_scale);
    adam_cpu(arrays, scaled);
  });
  return nullptr;
}

const char* launch_update(int device, const UpdateArrays& given, const UpdateRule& rule) {
  UpdateArrays arrays = given;
  const auto n = static_cast<size_t>(arrays.numel);
  const size_t size = arrays.gradient_type == ElementType::kFloat64 ? 8 : 4;
  PointerLaunch launch("kernels::update");
  launch.writes(arrays.master, n * size);
  launch.reads(arrays.gradient, n * bytes_of(arrays.gradient_type));
  for (void*& state : arrays.states) launch.writes(state, n * size);
  launch.writes(arrays.low_precision, n * 2);
  launch.reads(arrays.gradient_scale, sizeof(double));
  launch.run(device, [=] {
    if (is_skipped(arrays.gradient_scale)) return;
    UpdateRule scaled = rule;
    if (arrays.gradient_scale != nullptr)
      std::visit([&](auto& r) { r.gradient_scale = *arrays.gradient_scale; }, scaled);
    update_cpu(arrays, scaled);
  });
  return nullptr;
}

const char* launch_sum_of_squares(int device, const void* values, ElementType type, int64_t numel,
                                  double* block_sums) {
  PointerLaunch launch("kernels::sum_of_squares");
  launch.reads(values, static_cast<size_t>(numel) * bytes_of(type));
  launch.writes(block_sums, kSumOfSquaresBlocks * sizeof(double));
  launch.run(device, [=] {
    std::fill_n(block_sums, kSumOfSquaresBlocks, 0.0);
    block_sums[0] = sum_of_squares_cpu(values, type, numel);
  });
  return nullptr;
}

const char* launch_gradient_scale(int device, const double* sum_of_squares, double loss_scale, double clip,
                                  bool skips, double* scale) {
  PointerLaunch launch("kernels::gradient_scale");
  launch.reads(sum_of_squares, sizeof(double));
  launch.writes(scale, sizeof(double));
  launch.run(device, [=] {
    const double norm = std::sqrt(*sum_of_squares);
    *scale = std::isfinite(norm) || !skips
                 ? precision::combined_gradient_scale(std::isfinite(norm) ? norm : 0.0, loss_scale, clip)
                 : std::nan("");
  });
  return nullptr;
}

void add_quantized_block(const QuantizedBlock& block) {
  float terms[2048];
  QuantizedBlock apart = block;
  apart.values = terms;
  dequantize_block_simd(apart);
  for (int64_t i = 0; i < block.numel; ++i) static_cast<float*>(block.values)[i] += terms[i];
}

/// How a kernel of quantized blocks uses its arrays, and what it does with each block.
struct QuantizedWork {
  const char* name;
  bool writes_values;
  void (*of_block)(const QuantizedBlock&);
};

const char* run_quantized(const QuantizedWork& work, int device, const QuantizedArray& given) {
  QuantizedArray array = given;
  const int64_t each = quantization_block(array.code), blocks = (array.numel + each - 1) / each;
  const auto size = static_cast<int64_t>(bytes_of(array.type));
  PointerLaunch launch(work.name);
  launch.uses(array.values, static_cast<size_t>(array.numel * size), work.writes_values);
  launch.uses(array.codes, static_cast<size_t>((array.numel * bits_of(array.code) + 7) / 8),
              !work.writes_values);
  launch.uses(array.scales, static_cast<size_t>(blocks) * sizeof(float), !work.writes_values);
  launch.run(device, [=] {
    for (int64_t index = 0; index < blocks; ++index) {
      const int64_t begin = index * each;
      work.of_block({.values = static_cast<char*>(array.values) + begin * size,
                     .type = array.type,
                     .codes = array.codes + begin * bits_of(array.code) / 8,
                     .scale = array.scales + index,
                     .numel = std::min(each, array.numel - begin),
                     .code = array.code});
    }
  });
  return nullptr;
}

const char* launch_quantize(int device, const QuantizedArray& array) {
  return run_quantized({"kernels::quantize", false, &quantize_block_simd}, device, array);
}

const char* launch_dequantize(int device, const QuantizedArray& array) {
  return run_quantized({"kernels::dequantize", true, &dequantize_block_simd}, device, array);
}

const char* launch_add_quantized(int device, const QuantizedArray& array) {
  return run_quantized({"kernels::add_quantized", true, &add_quantized_block}, device, array);
}

const char* launch_compress_signs(int device, float* values, float* errors, uint8_t* bits, float* scales,
                                  int64_t num_blocks) {
  const auto blocks = static_cast<size_t>(num_blocks);
  PointerLaunch launch("kernels::compress_signs");
  launch.writes(values, blocks * kSignBlock * sizeof(float));
  launch.writes(errors, blocks * kSignBlock * sizeof(float));
  launch.writes(bits, blocks * kSignBlock / 8);
  launch.writes(scales, blocks * sizeof(float));
  launch.run(device, [=] {
    for (int64_t block = 0; block < num_blocks; ++block) {
      const int64_t begin = block * kSignBlock;
      scales[block] = compress_sign_block(values + begin, errors + begin, bits + begin / 8, kSignBlock);
    }
  });
  return nullptr;
}

const char* launch_add_signs(int device, const uint8_t* bits, const float* scales, float* sums,
                             int64_t num_blocks) {
  const auto blocks = static_cast<size_t>(num_blocks);
  PointerLaunch launch("kernels::add_signs");
  launch.reads(bits, blocks * kSignBlock / 8);
  launch.reads(scales, blocks * sizeof(float));
  launch.writes(sums, blocks * kSignBlock * sizeof(float));
  launch.run(device, [=] {
    for (int64_t block = 0; block < num_blocks; ++block) {
      const int64_t begin = block * kSignBlock;
      add_sign_block(bits + begin / 8, scales[block], sums + begin, kSignBlock);
    }
  });
  return nullptr;
}

}  // namespace
}  // namespace deepspeed::kernels

namespace deepspeed::simulated {

const kernels::CudaKernels cuda_kernels = {
    .adam = &kernels::launch_adam,
    .update = &kernels::launch_update,
    .sum_of_squares = &kernels::launch_sum_of_squares,
    .gradient_scale = &kernels::launch_gradient_scale,
    .quantize = &kernels::launch_quantize,
    .dequantize = &kernels::launch_dequantize,
    .add_quantized = &kernels::launch_add_quantized,
    .compress_signs = &kernels::launch_compress_signs,
    .add_signs = &kernels::launch_add_signs,
    .ops = kernels::simulated_ops(),
};

}  // namespace deepspeed::simulated
