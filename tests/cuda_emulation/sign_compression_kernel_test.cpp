#include "deepspeed/kernels/cpu/messages/message_kernels.h"
#include "deepspeed/kernels/cuda/launches.h"

#include "cuda_emulation/emulated_kernels.h"

namespace deepspeed::kernels {
namespace {

constexpr int64_t kBlock = 2048;

struct SignTwins {
  SignTwins(int64_t num_blocks, bool has_specials)
      : blocks(num_blocks),
        values(Type::kFloat, blocks * kBlock, 4),
        errors(Type::kFloat, blocks * kBlock),
        bits(Type::kByte, blocks * kBlock / 8, 1),
        scales(Type::kFloat, blocks, 1),
        sums(Type::kFloat, blocks * kBlock, 8) {
    Random random(blocks);
    values.fill([&](int64_t i) {
      const bool is_special = has_specials && i / kBlock % 2 == 0 && random.uniform() < 0.01;
      return is_special ? random.special(true) : random.normal();
    });
    errors.fill([&](int64_t i) {  // some sums of a value and its error are 0
      return i % 97 == 0 ? -values.cpu_as<float>()[i] : 0.1 * random.normal();
    });
    sums.fill([](int64_t) { return 1.0; });
  }

  void compress_on_cpu() {
    for (int64_t b = 0; b < blocks; ++b) {
      scales.cpu_as<float>()[b] =
          compress_sign_block(values.cpu_as<float>() + b * kBlock, errors.cpu_as<float>() + b * kBlock,
                              bits.cpu_as<uint8_t>() + b * kBlock / 8, kBlock);
    }
  }
  void add_on_cpu() {
    for (int64_t b = 0; b < blocks; ++b) {
      add_sign_block(bits.cpu_as<uint8_t>() + b * kBlock / 8, scales.cpu_as<float>()[b],
                     sums.cpu_as<float>() + b * kBlock, kBlock);
    }
  }

  int64_t blocks;
  TwinArray values, errors, bits, scales, sums;
};

using SignKernel = EmulatedKernels;
INSTANTIATE_TEST_SUITE_P(Orders, SignKernel, testing::Values(0, 7));

// Squares are added up in another order than on the CPU, so scales and what follows from them are near.
TEST_P(SignKernel, CompressesAsTheCpuDoes) {
  for (const int64_t blocks : {1, 5, 49}) {
    for (const bool has_specials : {false, true}) {
      SignTwins twins(blocks, has_specials);
      twins.compress_on_cpu();
      ASSERT_EQ(launch_compress_signs(twins.values.device_as<float>(), twins.errors.device_as<float>(),
                                      twins.bits.device_as<uint8_t>(), twins.scales.device_as<float>(),
                                      blocks, nullptr),
                cudaSuccess);
      ASSERT_EQ(twins.values.difference(), "") << "values";
      ASSERT_EQ(twins.bits.difference(), "") << "bits";
      expect_near(twins.scales, 1e-5, "scale");
      expect_near(twins.errors, 1e-5, "error");
      twins.add_on_cpu();
      ASSERT_EQ(launch_add_signs(twins.bits.device_as<uint8_t>(), twins.scales.device_as<float>(),
                                 twins.sums.device_as<float>(), blocks, nullptr),
                cudaSuccess);
      expect_near(twins.sums, 1e-5, "sum");
    }
  }
}

TEST(SignKernelLaunch, SucceedsForNoElements) {
  EXPECT_EQ(launch_compress_signs(nullptr, nullptr, nullptr, nullptr, 0, nullptr), cudaSuccess);
  EXPECT_EQ(launch_add_signs(nullptr, nullptr, nullptr, 0, nullptr), cudaSuccess);
}

}  // namespace
}  // namespace deepspeed::kernels
