// The fused operators on the emulated device, against the CPU's kernels: sums are made in another order and
// exponentials by another library, so that results are near. What dropout draws is equal bit for bit.
#include "deepspeed/kernels/cpu/ops/op_kernels.h"

#include <algorithm>

#include "deepspeed/kernels/cuda/launches.h"

#include "cuda_emulation/emulated_kernels.h"

namespace deepspeed::kernels {
namespace {

constexpr Type kStoredTypes[] = {Type::kFloat, Type::kHalf, Type::kBFloat16, Type::kDouble};

Type wide_type(Type type) { return type == Type::kDouble ? Type::kDouble : Type::kFloat; }

/// Returns sizes of a warp's row and of a block's. Odd ones are taken element by element. Arrays of multiples
/// of 8 are aligned, so that threads take packs.
std::vector<int64_t> columns_to_try() {
  return is_slow_build() ? std::vector<int64_t>{1, 7, 70, 264}
                         : std::vector<int64_t>{1, 7, 33, 264, 1037, 2056};
}

/// Returns sizes of which one is of three packs a thread of a warp, and the largest do not fit the registers
/// of a block.
std::vector<int64_t> columns_of_rows() {
  std::vector<int64_t> columns = columns_to_try();
  if (!is_slow_build()) columns.insert(columns.end(), {744, 8200, 8201});
  return columns;
}

/// An array of random numbers; every other one begins off an aligned address, unless its size is a multiple
/// of 8.
struct OpArray : TwinArray {
  OpArray(Type type, int64_t numel, int64_t seed, bool has_specials = false)
      : TwinArray(type, numel, numel % 8 == 0 ? 0 : seed % 2) {
    Random random(seed);
    fill([&](int64_t) {
      if (!has_specials || random.uniform() > 0.02) return random.normal();
      const double specials[] = {INFINITY, -INFINITY, NAN, 0.0, -0.0, 1e-40, 80.0, -80.0, 200.0};
      return specials[random.bits() % std::size(specials)];
    });
  }
  /// One that the kernels write: a nan stays where they do not.
  OpArray(Type type, int64_t numel) : TwinArray(type, numel, numel % 8 == 0 ? 0 : 1) {
    fill([](int64_t) { return 12345.0; });
  }
};

/// Expects both sides near: by a rounding of the type, and `tolerance` of fp32 (fp64) arithmetic.
void expect_near_twins(const TwinArray& twin, double tolerance, const char* what) {
  const double ulp = twin.type == Type::kBFloat16 ? 0x1p-7 : twin.type == Type::kHalf ? 0x1p-10 : 0;
  const double least = twin.type == Type::kDouble ? tolerance * 0x1p-29 : tolerance;
  for (int64_t i = 0; i < twin.numel; ++i) {
    const double a = load(twin.type, twin.cpu.data() + twin.bytes_of(i));
    const double b = load(twin.type, static_cast<const char*>(twin.device.data()) + twin.bytes_of(i));
    if ((std::isnan(a) && std::isnan(b)) || a == b) continue;
    ASSERT_NEAR(a, b, ulp * std::abs(a) + least * (1 + std::abs(a)))
        << what << " " << i << " of " << twin.numel;
  }
}

using OpKernel = EmulatedKernels;
INSTANTIATE_TEST_SUITE_P(Orders, OpKernel, testing::Values(0, 7));

TEST_P(OpKernel, NormalizesAsTheCpuDoes) {
  for (const Type type : kStoredTypes) {
    for (const int64_t columns : columns_of_rows()) {
      for (const bool is_rms : {false, true}) {
        constexpr int64_t kRows = 9;
        const Type parameter = columns % 2 == 0 ? type : wide_type(type);
        OpArray input(type, kRows * columns, 1), residual(type, kRows * columns, 2);
        OpArray weight(parameter, columns, 3), bias(parameter, columns, 4);
        OpArray output(type, kRows * columns), sum(type, kRows * columns);
        OpArray mean(wide_type(type), kRows), rstd(wide_type(type), kRows);
        const auto arrays = [&](auto on) {
          NormArrays a;
          a.input = on(input), a.residual = on(residual), a.weight = on(weight);
          a.bias = is_rms ? nullptr : on(bias);
          a.output = on(output), a.sum = on(sum), a.rstd = on(rstd);
          a.mean = is_rms ? nullptr : on(mean);
          a.rows = kRows, a.columns = columns, a.eps = 1e-5;
          a.type = element(type), a.parameter_type = element(parameter);
          return a;
        };
        norm_simd(arrays([](TwinArray& twin) { return twin.on_cpu(); }), 0, kRows);
        ASSERT_EQ(launch(arrays([](TwinArray& twin) { return twin.on_device(); }), nullptr), cudaSuccess);
        ASSERT_EQ(sum.difference(), "");
        expect_near_twins(rstd, 1e-4, "rstd");
        if (columns > 1) expect_near_twins(output, 1e-4, "output");

        OpArray grad(type, kRows * columns, 5), grad_sum(type, kRows * columns, 6),
            grad_input(type, kRows * columns);
        constexpr int64_t kParts = 4;
        OpArray weights(wide_type(type), kParts * columns), biases(wide_type(type), kParts * columns);
        const auto backward = [&](auto on) {
          NormBackwardArrays a;
          a.grad_output = on(grad), a.grad_sum = on(grad_sum), a.sum = on(sum);
          a.mean = is_rms ? nullptr : on(mean);
          a.rstd = on(rstd), a.weight = on(weight);
          a.grad_input = on(grad_input), a.weight_parts = on(weights), a.bias_parts = on(biases);
          a.rows = {kRows, columns, kParts}, a.is_rms = is_rms;
          a.type = element(type), a.parameter_type = element(parameter);
          return a;
        };
        rstd.copy_to_device(), mean.copy_to_device();
        for (int64_t part = 0; part < kParts; ++part) {
          norm_backward_simd(backward([](TwinArray& twin) { return twin.on_cpu(); }), part);
        }
        ASSERT_EQ(launch(backward([](TwinArray& twin) { return twin.on_device(); }), nullptr), cudaSuccess);
        if (columns > 1) expect_near_twins(grad_input, 1e-4, "grad_input");
        expect_near_twins(weights, 1e-4, "weight_parts");
        expect_near_twins(biases, 1e-4, "bias_parts");
      }
    }
  }
}

TEST_P(OpKernel, SumsPartsInOneOrTwoArrays) {
  for (const Type type : kStoredTypes) {
    for (const int64_t columns : {1, 7, 8, 70, 264}) {
      for (const int64_t num_parts : {1, 31, 100}) {
        for (const bool has_two : {true, false}) {
          OpArray first(wide_type(type), num_parts * columns, 1),
              second(wide_type(type), num_parts * columns, 2);
          OpArray of_first(type, columns), of_second(type, columns);
          PartSumsArrays a;
          a.parts[0] = first.on_device(), a.sums[0] = of_first.on_device();
          if (has_two) a.parts[1] = second.on_device(), a.sums[1] = of_second.on_device();
          a.num_parts = num_parts, a.columns = columns, a.type = element(type);
          ASSERT_EQ(launch(a, nullptr), cudaSuccess);
          const auto sum = [&](OpArray& parts, OpArray& sums) {
            for (int64_t column = 0; column < columns; ++column) {
              double exact = 0;
              for (int64_t part = 0; part < num_parts; ++part) {
                exact += load(parts.type, parts.cpu.data() + parts.bytes_of(part * columns + column));
              }
              store(type, exact, sums.cpu.data() + sums.bytes_of(column));
            }
          };
          sum(first, of_first);
          if (has_two) sum(second, of_second);
          expect_near_twins(of_first, 1e-4, "first");
          expect_near_twins(of_second, 1e-4, "second");  // untouched without two
        }
      }
    }
  }
}

TEST_P(OpKernel, NormalizesBackwardFromTheOutput) {
  constexpr int64_t kRows = 5, kColumns = 37;
  OpArray output(Type::kFloat, kRows * kColumns, 1), grad(Type::kFloat, kRows * kColumns, 2),
      rstd(Type::kFloat, kRows, 3);
  OpArray weight(Type::kFloat, kColumns, 4), bias(Type::kFloat, kColumns, 5),
      grad_input(Type::kFloat, kRows * kColumns);
  weight.fill([](int64_t i) { return 0.5 + 0.01 * double(i); });
  OpArray weights(Type::kFloat, kColumns), biases(Type::kFloat, kColumns);
  const auto arrays = [&](auto on) {
    NormBackwardArrays a;
    a.grad_output = on(grad), a.output = on(output), a.rstd = on(rstd), a.weight = on(weight),
    a.bias = on(bias);
    a.grad_input = on(grad_input), a.weight_parts = on(weights), a.bias_parts = on(biases);
    a.rows = {kRows, kColumns, 1};
    return a;
  };
  norm_backward_simd(arrays([](TwinArray& twin) { return twin.on_cpu(); }), 0);
  ASSERT_EQ(launch(arrays([](TwinArray& twin) { return twin.on_device(); }), nullptr), cudaSuccess);
  expect_near_twins(grad_input, 1e-4, "grad_input");
  expect_near_twins(weights, 1e-4, "weight_parts");
}

TEST_P(OpKernel, ActivatesAsTheCpuDoes) {
  for (const Type type : kStoredTypes) {
    for (const int64_t columns : columns_to_try()) {
      constexpr int64_t kRows = 6, kParts = 4;
      const Type parameter = columns % 2 == 0 ? type : wide_type(type);
      const int64_t numel = kRows * columns;
      OpArray input(type, numel, 1, true), bias(parameter, columns, 2), grad(type, numel, 3),
          output(type, numel);
      OpArray plain(type, numel, 4), grad_input(type, numel), parts(wide_type(type), kParts * columns);
      const auto gelu = [&](auto on, bool backward, bool has_bias) {
        BiasGeluArrays a;
        a.backward = backward;
        a.input = on(backward ? plain : input);
        a.bias = has_bias ? on(bias) : nullptr;
        a.grad_output = backward ? on(grad) : nullptr;
        a.output = on(backward ? grad_input : output);
        a.bias_parts = backward && has_bias ? on(parts) : nullptr;
        a.rows = {kRows, columns, kParts};
        a.type = element(type), a.parameter_type = element(parameter);
        return a;
      };
      const auto cpu = [](TwinArray& twin) { return twin.on_cpu(); };
      const auto device = [](TwinArray& twin) { return twin.on_device(); };
      for (const bool has_bias : {true, false}) {
        bias_gelu_simd(gelu(cpu, false, has_bias), 0, numel);
        ASSERT_EQ(launch(gelu(device, false, has_bias), nullptr), cudaSuccess);
        expect_near_twins(output, 1e-5, "gelu");
        const BiasGeluArrays backward = gelu(cpu, true, has_bias);
        parts.fill([](int64_t) { return 0.0; });
        for (int64_t part = 0; part < kParts; ++part) {
          char* const sums = has_bias ? parts.cpu.data() + parts.bytes_of(part * columns) : nullptr;
          bias_gelu_backward_simd(backward, first_row(backward.rows, part) * columns,
                                  first_row(backward.rows, part + 1) * columns, sums);
        }
        ASSERT_EQ(launch(gelu(device, true, has_bias), nullptr), cudaSuccess);
        expect_near_twins(grad_input, 1e-5, "gelu backward");
        if (has_bias) expect_near_twins(parts, 1e-4, "bias_parts");
      }

      OpArray both(type, 2 * numel, 5, true), grads(type, 2 * numel);
      const auto swiglu = [&](auto on, bool backward) {
        const auto half = [&](TwinArray& twin) {
          return static_cast<char*>(on(twin)) + twin.bytes_of(columns);
        };
        SwigluArrays a;
        a.backward = backward;
        a.gate = on(both), a.up = half(both);
        a.gate_stride = a.up_stride = a.grad_gate_stride = a.grad_up_stride = 2 * columns;
        a.rows = kRows, a.columns = columns, a.type = element(type);
        if (!backward) a.output = on(output);
        if (backward) a.grad_output = on(grad), a.grad_gate = on(grads), a.grad_up = half(grads);
        return a;
      };
      swiglu_simd(swiglu(cpu, false), 0, kRows);
      ASSERT_EQ(launch(swiglu(device, false), nullptr), cudaSuccess);
      expect_near_twins(output, 1e-5, "swiglu");
      swiglu_backward_simd(swiglu(cpu, true), 0, kRows);
      ASSERT_EQ(launch(swiglu(device, true), nullptr), cudaSuccess);
      expect_near_twins(grads, 1e-5, "swiglu backward");
    }
  }
}

TEST_P(OpKernel, DropsTheBitsThatTheCpuDrops) {
  for (const Type type : kStoredTypes) {
    for (const int64_t columns : columns_to_try()) {
      for (const double ratio : {0.0, 0.3, 1.0}) {
        constexpr int64_t kRows = 5, kParts = 2;
        const Type parameter = columns % 2 == 0 ? type : wide_type(type);
        const int64_t numel = kRows * columns;
        OpArray input(type, numel, 1, true), bias(parameter, columns, 2), residual(type, numel, 3),
            output(type, numel);
        OpArray grad_input(type, numel), parts(wide_type(type), kParts * columns);
        const auto arrays = [&](auto on, bool backward) {
          DropoutArrays a;
          a.input = on(backward ? residual : input);
          a.bias = backward ? nullptr : on(bias);
          a.residual = backward ? nullptr : on(residual);
          a.output = on(backward ? grad_input : output);
          a.bias_parts = backward ? on(parts) : nullptr;
          a.rows = {kRows, columns, kParts};
          a.philox = {0x123456789abcdefULL, ~uint64_t{4}};
          a.threshold = dropout_threshold(ratio), a.scale = ratio == 1 ? 0 : 1 / (1 - ratio);
          a.type = element(type), a.parameter_type = element(parameter);
          return a;
        };
        const auto cpu = [](TwinArray& twin) { return twin.on_cpu(); };
        const auto device = [](TwinArray& twin) { return twin.on_device(); };
        dropout_simd(arrays(cpu, false), 0, numel, nullptr);
        ASSERT_EQ(launch(arrays(device, false), nullptr), cudaSuccess);
        ASSERT_EQ(output.difference(), "") << ratio;
        const DropoutArrays backward = arrays(cpu, true);
        parts.fill([](int64_t) { return 0.0; });
        for (int64_t part = 0; part < kParts; ++part) {
          dropout_simd(backward, first_row(backward.rows, part) * columns,
                       first_row(backward.rows, part + 1) * columns,
                       parts.cpu.data() + parts.bytes_of(part * columns));
        }
        ASSERT_EQ(launch(arrays(device, true), nullptr), cudaSuccess);
        ASSERT_EQ(grad_input.difference(), "") << ratio;
        ASSERT_EQ(parts.difference(), "") << ratio;
      }
    }
  }
}

TEST_P(OpKernel, TakesTheSoftmaxAsTheCpuDoes) {
  for (const Type type : kStoredTypes) {
    for (const int64_t columns : columns_of_rows()) {
      constexpr int64_t kRows = 12;
      const Type mask_type = columns % 2 == 0 ? type : wide_type(type);
      OpArray scores(type, kRows * columns, 1, true), mask(mask_type, 4 * columns, 2),
          output(type, kRows * columns);
      OpArray grad(type, kRows * columns, 3);
      const auto arrays = [&](auto on) {
        MaskedSoftmaxArrays a;
        a.scores = on(scores), a.mask = on(mask), a.output = on(output);
        a.rows = kRows, a.columns = columns, a.scale = 0.7;
        a.mask_dims = 3;  // [2, 3, 2] rows, of which the first and the last dimension have masks
        const int64_t sizes[] = {2, 3, 2}, strides[] = {2 * columns, 0, columns};
        std::copy_n(sizes, 3, a.mask_sizes), std::copy_n(strides, 3, a.mask_strides);
        a.type = element(type), a.mask_type = element(mask_type);
        return a;
      };
      const auto cpu = [](TwinArray& twin) { return twin.on_cpu(); };
      const auto device = [](TwinArray& twin) { return twin.on_device(); };
      masked_softmax_simd(arrays(cpu), 0, kRows);
      ASSERT_EQ(launch(arrays(device), nullptr), cudaSuccess);
      expect_near_twins(output, 1e-5, "softmax");
      const auto backward = [&](auto on) {
        SoftmaxBackwardArrays a;
        a.grad_output = a.grad_input = on(grad), a.output = on(output);
        a.rows = kRows, a.columns = columns, a.scale = 0.7, a.type = element(type);
        return a;
      };
      output.copy_to_device();
      softmax_backward_simd(backward(cpu), 0, kRows);
      ASSERT_EQ(launch(backward(device), nullptr), cudaSuccess);
      expect_near_twins(grad, 1e-5, "softmax backward, in place");
    }
  }
}

TEST_P(OpKernel, TurnsHeadsAsTheCpuDoes) {
  struct Sizes {
    int64_t dim, half;
  };
  for (const auto [kDim, kHalf] : {Sizes{71, 33}, Sizes{80, 32}}) {
    for (const Type type : kStoredTypes) {
      for (const bool neighbours : {false, true}) {
        for (const bool backward : {false, true}) {
          constexpr int64_t kBatch = 2, kHeads = 3, kPositions = 3;
          const Type table_type = backward ? type : wide_type(type);
          OpArray input(type, kBatch * kHeads * kPositions * kDim, 1),
              output(type, kBatch * kHeads * kPositions * kDim);
          OpArray cos(table_type, kBatch * kPositions * kHalf, 2),
              sin(table_type, kBatch * kPositions * kHalf, 3);
          const auto arrays = [&](auto on) {
            RotaryArrays a;
            a.input = on(input), a.output = on(output), a.cos = on(cos), a.sin = on(sin);
            a.batch = kBatch, a.heads = kHeads, a.positions = kPositions, a.dim = kDim, a.rotary = 2 * kHalf;
            // The input is [batch, positions, heads, dim] in memory, the output [batch, heads, positions,
            // dim].
            const int64_t from[] = {kHeads * kPositions * kDim, kDim, kHeads * kDim};
            const int64_t to[] = {kHeads * kPositions * kDim, kPositions * kDim, kDim};
            std::copy_n(from, 3, a.input_strides), std::copy_n(to, 3, a.output_strides);
            a.table_batch_stride = kPositions * kHalf;
            a.neighbours = neighbours, a.backward = backward;
            a.type = element(type), a.table_type = element(table_type);
            return a;
          };
          rotary_simd(arrays([](TwinArray& twin) { return twin.on_cpu(); }), 0, kBatch * kHeads * kPositions);
          ASSERT_EQ(launch(arrays([](TwinArray& twin) { return twin.on_device(); }), nullptr), cudaSuccess);
          expect_near_twins(output, 1e-6, "rotary");
        }
      }
    }
  }
}

TEST_P(OpKernel, TakesTheCrossEntropyAsTheCpuDoes) {
  for (const Type type : kStoredTypes) {
    for (const int64_t columns : columns_to_try()) {
      for (const double smoothing : {0.0, 0.2}) {
        constexpr int64_t kRows = 5;
        OpArray logits(type, kRows * columns, 1), row_gradients(wide_type(type), kRows, 2),
            losses(wide_type(type), kRows);
        // Classes that are masked out, among them all that a thread meets first.
        logits.fill([&](int64_t i) {
          const bool is_masked = i / columns == 2 && i % columns < 16 && columns > 16;
          return is_masked ? -INFINITY : load(type, logits.cpu.data() + logits.bytes_of(i));
        });
        TwinArray targets(Type::kDouble, kRows);  // int64 in the place of doubles
        for (int64_t row = 0; row < kRows; ++row)
          targets.cpu_as<int64_t>()[row] = row == 1 ? -100 : row * 3 % columns;
        targets.copy_to_device();
        const auto arrays = [&](auto on, bool has_gradients) {
          CrossEntropyArrays a;
          a.logits = on(logits), a.targets = static_cast<const int64_t*>(on(targets)), a.losses = on(losses);
          a.row_gradients = has_gradients ? on(row_gradients) : nullptr;
          a.rows = kRows, a.columns = columns, a.ignore_index = -100, a.label_smoothing = smoothing;
          a.type = element(type);
          return a;
        };
        for (const bool has_gradients : {false, true}) {
          cross_entropy_simd(arrays([](TwinArray& twin) { return twin.on_cpu(); }, has_gradients), 0, kRows);
          ASSERT_EQ(launch(arrays([](TwinArray& twin) { return twin.on_device(); }, has_gradients), nullptr),
                    cudaSuccess);
          expect_near_twins(losses, 1e-5, "losses");
          expect_near_twins(logits, 1e-5, "gradients");
        }
      }
    }
  }
}

TEST_P(OpKernel, MakesNanOfATargetThatIsNoClass) {
  OpArray logits(Type::kFloat, 8, 1), ones(Type::kFloat, 2, 2), losses(Type::kFloat, 2);
  TwinArray targets(Type::kDouble, 2);
  targets.cpu_as<int64_t>()[0] = 4, targets.cpu_as<int64_t>()[1] = 3;
  targets.copy_to_device();
  CrossEntropyArrays a;
  a.logits = logits.on_device(), a.targets = targets.device_as<int64_t>(), a.losses = losses.on_device();
  a.row_gradients = ones.on_device(), a.rows = 2, a.columns = 4, a.ignore_index = -100;
  ASSERT_EQ(launch(a, nullptr), cudaSuccess);
  EXPECT_TRUE(std::isnan(losses.device_as<float>()[0]));
  EXPECT_FALSE(std::isnan(losses.device_as<float>()[1]));
  EXPECT_TRUE(std::isnan(logits.device_as<float>()[3]));
  EXPECT_FALSE(std::isnan(logits.device_as<float>()[4]));
}

TEST_P(OpKernel, SumsRowsOfAnEmbedding) {
  for (const Type type : kStoredTypes) {
    for (const int64_t dim : columns_to_try()) {
      constexpr int64_t kPositions = 17, kTableRows = 5;
      OpArray grad(type, kPositions * dim, 1);
      TwinArray sums(wide_type(type), kTableRows * dim), indices(Type::kDouble, kPositions);
      sums.fill([](int64_t) { return 0.0; });
      for (int64_t i = 0; i < kPositions; ++i) indices.cpu_as<int64_t>()[i] = i * i % kTableRows;
      indices.copy_to_device();
      for (int64_t i = 0; i < kPositions; ++i) {
        const int64_t row = indices.cpu_as<int64_t>()[i];
        for (int64_t k = 0; row != 1 && k < dim; ++k) {  // 1 is the padding's
          char* const at = sums.cpu.data() + sums.bytes_of(row * dim + k);
          store(sums.type, load(sums.type, at) + load(type, grad.cpu.data() + grad.bytes_of(i * dim + k)),
                at);
        }
      }
      EmbeddingGradientArrays a;
      a.grad_output = grad.on_device(), a.indices = indices.device_as<int64_t>(),
      a.grad_weight = sums.on_device();
      a.positions = kPositions, a.dim = dim, a.num_embeddings = kTableRows, a.padding_index = 1,
      a.type = element(type);
      ASSERT_EQ(launch(a, nullptr), cudaSuccess);
      expect_near_twins(sums, 1e-5, "sums");
    }
  }
}

TEST(OpKernelLaunch, SucceedsForNoElements) {
  EXPECT_EQ(launch(NormArrays(), nullptr), cudaSuccess);
  EXPECT_EQ(launch(SwigluArrays(), nullptr), cudaSuccess);
  EXPECT_EQ(launch(DropoutArrays(), nullptr), cudaSuccess);
  EXPECT_EQ(launch(MaskedSoftmaxArrays(), nullptr), cudaSuccess);
  EXPECT_EQ(launch(RotaryArrays(), nullptr), cudaSuccess);
  EXPECT_EQ(launch(CrossEntropyArrays(), nullptr), cudaSuccess);
  EXPECT_EQ(launch(EmbeddingGradientArrays(), nullptr), cudaSuccess);
}

}  // namespace
}  // namespace deepspeed::kernels
