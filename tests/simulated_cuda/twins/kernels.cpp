// The launches of deepspeed/kernels/cuda over the simulated device: given to the current stream, computed by the CPU's
// kernels.
#include <algorithm>
#include <vector>

#include <ATen/ops/full.h>

#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/cpu/adam_cpu.h"
#include "deepspeed/kernels/cpu/grad_stats_cpu.h"
#include "deepspeed/kernels/cpu/messages/block_quantization_simd.h"
#include "deepspeed/kernels/cpu/messages/sign_compression_simd.h"
#include "deepspeed/kernels/cpu/update_cpu.h"
#include "deepspeed/kernels/cuda/adam_cuda.h"
#include "deepspeed/kernels/cuda/block_quantization_cuda.h"
#include "deepspeed/kernels/cuda/grad_stats_cuda.h"
#include "deepspeed/kernels/cuda/sign_compression_cuda.h"
#include "deepspeed/kernels/cuda/update_cuda.h"
#include "deepspeed/kernels/sign_compression.h"

#include "tests/simulated_cuda/device/call.h"

namespace deepspeed::kernels {
namespace {

size_t bytes_of(ElementType type) {
  if (type == ElementType::kFloat64) return 8;
  return type == ElementType::kFloat32 ? 4 : 2;
}

/// Collects what a kernel reads and writes; a device address becomes the place of its bytes.
class PointerLaunch {
 public:
  explicit PointerLaunch(const char* name) : name_(name) {}
  template <typename T>
  void reads(T*& data, size_t bytes) {
    add(data, bytes, false);
  }
  template <typename T>
  void writes(T*& data, size_t bytes) {
    add(data, bytes, true);
  }
  void launch(int device) const { simulated::launch(name_, simulated::current_stream(device), uses_); }

 private:
  template <typename T>
  void add(T*& data, size_t bytes, bool writes) {
    if (data == nullptr) return;
    uses_.push_back({data, bytes, writes});
    data = reinterpret_cast<T*>(simulated::bytes_at(data));
  }
  const char* name_;
  std::vector<simulated::Use> uses_;
};

}  // namespace

void adam_cuda(const AdamArrays& given, const AdamConstants& constants, int device_index) {
  AdamArrays arrays = given;
  const auto n = static_cast<size_t>(arrays.numel);
  PointerLaunch launch("kernels::adam");
  launch.writes(arrays.master, n * (arrays.master_form == MasterForm::kFloat32 ? 4 : 2));
  launch.reads(arrays.gradient, n * bytes_of(arrays.gradient_type));
  launch.writes(arrays.exp_avg, n * bytes_of(arrays.moment_type));
  launch.writes(arrays.exp_avg_sq, n * bytes_of(arrays.moment_type));
  launch.writes(arrays.low_precision, n * 2);
  launch.launch(device_index);
  adam_cpu(arrays, constants);
}

void update_cuda(const UpdateArrays& given, const UpdateRule& rule, int device_index) {
  UpdateArrays arrays = given;
  const auto n = static_cast<size_t>(arrays.numel);
  const size_t size = arrays.gradient_type == ElementType::kFloat64 ? 8 : 4;
  PointerLaunch launch("kernels::update");
  launch.writes(arrays.master, n * size);
  launch.reads(arrays.gradient, n * bytes_of(arrays.gradient_type));
  for (void*& state : arrays.states) launch.writes(state, n * size);
  launch.writes(arrays.low_precision, n * 2);
  launch.launch(device_index);
  update_cpu(arrays, rule);
}

at::Tensor sum_of_squares_cuda(const at::Tensor& values) {
  simulated::Call call("kernels::sum_of_squares");
  const at::Tensor on_cpu = call.on_cpu(values, false);
  call.launch();
  const double sum = sum_of_squares_cpu(on_cpu.const_data_ptr(), element_type(values.scalar_type()), values.numel());
  call.finish();
  return call.on_device(at::full({}, sum, at::TensorOptions().dtype(at::kDouble)));
}

namespace {

/// How a kernel of quantized blocks uses its tensors, and what it does with each block.
struct QuantizedWork {
  const char* name;
  bool writes_values;
  void (*of_block)(const QuantizedBlock&);
};

void run_quantized(const QuantizedWork& work, const at::Tensor& values, const at::Tensor& codes, const at::Tensor& scales,
                   BlockCode code) {
  simulated::Call call(work.name);
  const at::Tensor v = call.on_cpu(values, work.writes_values), c = call.on_cpu(codes, !work.writes_values),
                   s = call.on_cpu(scales, !work.writes_values);
  call.launch();
  const int64_t each = quantization_block(code);
  for (int64_t begin = 0, index = 0; begin < v.numel(); begin += each, ++index) {
    work.of_block({.values = static_cast<char*>(v.data_ptr()) + begin * static_cast<int64_t>(v.element_size()),
                   .type = element_type(v.scalar_type()),
                   .codes = c.data_ptr<uint8_t>() + begin * bits_of(code) / 8,
                   .scale = s.data_ptr<float>() + index,
                   .numel = std::min(each, v.numel() - begin),
                   .code = code});
  }
  call.finish();
}

void add_quantized_block(const QuantizedBlock& block) {
  float terms[2048];
  QuantizedBlock apart = block;
  apart.values = terms;
  dequantize_block_simd(apart);
  for (int64_t i = 0; i < block.numel; ++i) static_cast<float*>(block.values)[i] += terms[i];
}

}  // namespace

void quantize_blocks_cuda(const at::Tensor& values, const at::Tensor& codes, const at::Tensor& scales, BlockCode code) {
  run_quantized({"kernels::quantize", false, &quantize_block_simd}, values, codes, scales, code);
}

void dequantize_blocks_cuda(const at::Tensor& codes, const at::Tensor& scales, const at::Tensor& values, BlockCode code) {
  run_quantized({"kernels::dequantize", true, &dequantize_block_simd}, values, codes, scales, code);
}

void add_quantized_cuda(const at::Tensor& codes, const at::Tensor& scales, const at::Tensor& sums, BlockCode code) {
  run_quantized({"kernels::add_quantized", true, &add_quantized_block}, sums, codes, scales, code);
}

void compress_signs_cuda(const at::Tensor& values, const at::Tensor& errors, const at::Tensor& bits,
                         const at::Tensor& scales) {
  simulated::Call call("kernels::compress_signs");
  const at::Tensor x = call.on_cpu(values, true), error = call.on_cpu(errors, true), b = call.on_cpu(bits, true),
                   s = call.on_cpu(scales, true);
  call.launch();
  for (int64_t block = 0; block < s.numel(); ++block) {
    const int64_t begin = block * kSignBlock;
    s.data_ptr<float>()[block] = compress_sign_block(x.data_ptr<float>() + begin, error.data_ptr<float>() + begin,
                                                     b.data_ptr<uint8_t>() + begin / 8, kSignBlock);
  }
  call.finish();
}

void add_signs_cuda(const at::Tensor& bits, const at::Tensor& scales, const at::Tensor& sums) {
  simulated::Call call("kernels::add_signs");
  const at::Tensor b = call.on_cpu(bits, false), s = call.on_cpu(scales, false), sum = call.on_cpu(sums, true);
  call.launch();
  for (int64_t block = 0; block < s.numel(); ++block) {
    const int64_t begin = block * kSignBlock;
    add_sign_block(b.data_ptr<uint8_t>() + begin / 8, s.data_ptr<float>()[block], sum.data_ptr<float>() + begin, kSignBlock);
  }
  call.finish();
}

}  // namespace deepspeed::kernels
