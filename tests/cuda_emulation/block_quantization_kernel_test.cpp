#include <algorithm>

#include "deepspeed/kernels/cpu/messages/message_kernels.h"
#include "deepspeed/kernels/cuda/launches.h"

#include "cuda_emulation/emulated_kernels.h"

namespace deepspeed::kernels {
namespace {

struct QuantizationCase {
  Type type = Type::kFloat;
  BlockCode code = BlockCode::kInt8;
  int64_t numel = 0, offset = 0;
  double size = 1;            // of the values
  bool has_specials = false;  // blocks of zeros, of denormal numbers and of special values

  std::string text() const {
    return "type " + std::to_string(int(type)) + " code " + std::to_string(int(code)) + " numel " +
           std::to_string(numel) + " offset " + std::to_string(offset) + " size " + std::to_string(size);
  }
  int64_t block() const { return quantization_block(code); }
  int64_t num_blocks() const { return (numel + block() - 1) / block(); }
  int64_t code_bytes() const { return (numel * bits_of(code) + 7) / 8; }
};

struct QuantizationTwins {
  explicit QuantizationTwins(const QuantizationCase& c)
      : of(c),
        values(c.type, c.numel, c.offset),
        codes(Type::kByte, c.code_bytes()),
        scales(Type::kFloat, c.num_blocks()),
        sums(Type::kFloat, c.numel, c.offset) {
    Random random(c.numel);
    values.fill([&](int64_t i) {
      const int64_t kind = c.has_specials ? i / c.block() % 3 : 0;
      if (kind == 1) return i % 2 == 0 ? -0.0 : 0.0;
      if (kind == 2) return random.uniform() < 0.001 ? random.special(true) : 1e-40 * random.normal();
      return random.uniform() < 0.05 ? 0.5 * c.size * double(random.bits() % 9) : random.normal() * c.size;
    });
    sums.fill([&](int64_t) { return random.normal(); });
  }

  void on_cpu(TwinArray& array, void (*work)(const QuantizedBlock&)) {
    for (int64_t b = 0; b < of.num_blocks(); ++b) {
      const int64_t begin = b * of.block();
      work({.values = array.cpu.data() + array.bytes_of(begin),
            .type = element(array.type),
            .codes = codes.cpu_as<uint8_t>() + begin * bits_of(of.code) / 8,
            .scale = scales.cpu_as<float>() + b,
            .numel = std::min(of.block(), of.numel - begin),
            .code = of.code});
    }
  }
  QuantizedArray on_device(TwinArray& array) {
    return {.values = array.on_device(),
            .type = element(array.type),
            .numel = of.numel,
            .codes = codes.device_as<uint8_t>(),
            .scales = scales.device_as<float>(),
            .code = of.code};
  }

  QuantizationCase of;
  TwinArray values, codes, scales, sums;
};

void expect_blocks_of_the_cpu(const QuantizationCase& c) {
  SCOPED_TRACE(c.text());
  QuantizationTwins twins(c);
  twins.on_cpu(twins.values, &quantize_block_simd);
  ASSERT_EQ(launch_quantize(twins.on_device(twins.values), nullptr), cudaSuccess);
  ASSERT_EQ(twins.scales.difference(), "") << "scales";
  ASSERT_EQ(twins.codes.difference(), "") << "codes";
  twins.on_cpu(twins.values, &dequantize_block_simd);
  ASSERT_EQ(launch_dequantize(twins.on_device(twins.values), nullptr), cudaSuccess);
  ASSERT_EQ(twins.values.difference(), "") << "values";
  // On the CPU a sum adds what comes back.
  TwinArray back(Type::kFloat, c.numel);
  twins.on_cpu(back, &dequantize_block_simd);
  for (int64_t i = 0; i < c.numel; ++i) twins.sums.cpu_as<float>()[i] += back.cpu_as<float>()[i];
  ASSERT_EQ(launch_add_quantized(twins.on_device(twins.sums), nullptr), cudaSuccess);
  ASSERT_EQ(twins.sums.difference(), "") << "sums";
}

using QuantizationKernel = EmulatedKernels;
INSTANTIATE_TEST_SUITE_P(Orders, QuantizationKernel, testing::Values(0, 7));

TEST_P(QuantizationKernel, GivesTheBlocksOfTheCpu) {
  for (const Type type : {Type::kFloat, Type::kHalf, Type::kBFloat16}) {
    for (const BlockCode code : {BlockCode::kInt4, BlockCode::kInt8, BlockCode::kFloat8}) {
      for (const int64_t numel :
           {1, 3, 7, 8, 9, 31, 33, 255, 256, 257, 1023, 2047, 2048, 2053, 37 * 2048 + 5}) {
        for (const int64_t offset : {0, 1, 4}) expect_blocks_of_the_cpu({type, code, numel, offset});
      }
    }
  }
}

TEST_P(QuantizationKernel, GivesTheBlocksOfTheCpuFromValuesOfAnySize) {
  for (const Type type : {Type::kFloat, Type::kHalf, Type::kBFloat16}) {
    for (const BlockCode code : {BlockCode::kInt4, BlockCode::kInt8, BlockCode::kFloat8}) {
      for (const double size : {1e-6, 1e-30, 1e-38, 1e4, 1e37}) {
        expect_blocks_of_the_cpu({type, code, 4099, 0, size, false});
        expect_blocks_of_the_cpu({type, code, 4099 * 4, 1, size, true});
      }
    }
  }
}

TEST(QuantizationKernelLaunch, SucceedsForNoElements) {
  EXPECT_EQ(launch_quantize({}, nullptr), cudaSuccess);
  EXPECT_EQ(launch_dequantize({}, nullptr), cudaSuccess);
  EXPECT_EQ(launch_add_quantized({}, nullptr), cudaSuccess);
}

}  // namespace
}  // namespace deepspeed::kernels
