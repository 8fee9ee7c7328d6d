// The fused operators where an element's index takes more than 31 bits: 2^31 + 1024 elements and more, whose
// last row alone holds numbers. Its results must be, bit for bit, those of an array of this row alone. The
// memory is sparse: what is not touched is nowhere. Of each launch the block runs that takes the last row; it
// also takes other rows, which are 0.
#include <algorithm>
#include <initializer_list>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "deepspeed/kernels/cpu/ops/op_kernels.h"
#include "deepspeed/kernels/cuda/launches.h"

#include "cuda_emulation/emulated_kernels.h"

namespace deepspeed::kernels {
namespace {

constexpr int64_t kBorder = int64_t{1} << 31;
constexpr int64_t kMostBlocks = 1 << 16, kThreads = 256, kSegment = 4096;  // as op_rows.cuh has them

/// Zeros that take no memory until they are written.
class SparseMemory {
 public:
  explicit SparseMemory(size_t bytes) : bytes_(bytes) {
    data_ =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
  }
  ~SparseMemory() { ::munmap(data_, bytes_); }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  char* data() const { return static_cast<char*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

/// Which of the four copies of an array a kernel works on.
struct Side {
  bool is_device, is_small;
};

/// An array whose last row of `rows` holds random numbers, on the CPU and on the device, and arrays of that
/// row alone.
class BorderArray {
 public:
  BorderArray(Type type, int64_t rows, int64_t columns, int64_t seed)
      : type_(type),
        last_(static_cast<size_t>((rows - 1) * columns) * size_of(type)),
        row_(static_cast<size_t>(columns) * size_of(type)),
        cpu_(last_ + row_),
        device_(last_ + row_),
        small_cpu_(row_),
        small_device_(row_) {
    Random random(seed);
    for (size_t at = 0; at < row_; at += size_of(type)) {
      const double number = random.normal();
      set(at, [&](char* to) { store(type, number, to); });
    }
  }
  /// Writes `numbers` over the beginning of the row.
  template <class T>
  void set_row(std::initializer_list<T> numbers) {
    size_t at = 0;
    for (const T number : numbers) {
      set(at, [&](char* to) { std::memcpy(to, &number, sizeof(T)); });
      at += sizeof(T);
    }
  }

  void* on(Side side) {
    return (side.is_device ? (side.is_small ? small_device_ : device_) : (side.is_small ? small_cpu_ : cpu_))
        .data();
  }
  char* row(Side side) { return static_cast<char*>(on(side)) + (side.is_small ? 0 : last_); }

  /// Says on which side the last row is not that of the small array, or all zeros; "" where all is well.
  std::string difference() {
    for (const bool is_device : {false, true}) {
      const char *const large = row({is_device, false}), *const small = row({is_device, true});
      const char* const side = is_device ? "the device" : "the CPU";
      if (std::memcmp(large, small, row_) != 0) return std::string("differs on ") + side;
      if (std::all_of(small, small + row_, [](char byte) { return byte == 0; }))
        return std::string("was not written on ") + side;
    }
    return "";
  }

 private:
  template <class Write>
  void set(size_t at, const Write& write) {
    for (const bool is_device : {false, true})
      for (const bool is_small : {false, true}) write(row({is_device, is_small}) + at);
  }

  Type type_;
  size_t last_, row_;
  SparseMemory cpu_, device_, small_cpu_, small_device_;
};

/// The number of the block that takes row (or segment) `index` of `count`.
uint64_t block_of(int64_t index, int64_t count, int64_t threads_of_team) {
  const int64_t teams = kThreads / threads_of_team;
  const int64_t blocks = std::min((count + teams - 1) / teams, kMostBlocks);
  return static_cast<uint64_t>(index % (blocks * teams) / teams);
}

struct Shape {
  int64_t rows, columns;

  int64_t team() const { return columns < 1024 ? 32 : kThreads; }
  int64_t segments() const { return (columns + kSegment - 1) / kSegment; }
  uint64_t row_block() const { return block_of(rows - 1, rows, team()); }
  /// Returns the block of the last row's first segment.
  uint64_t segment_block() const { return block_of((rows - 1) * segments(), rows * segments(), team()); }
  /// Returns the block of the last part's sums.
  uint64_t part_block(int64_t parts, int64_t columns_of_thread) const {
    const int64_t width = kThreads * columns_of_thread;
    return static_cast<uint64_t>((parts - 1) * ((columns + width - 1) / width));
  }
};

/// Elements that a thread takes at once where rows are aligned, as here.
int64_t elements_of_pack(Type type) { return 16 / static_cast<int64_t>(size_of(type)); }

// Rows that warps take, and rows that blocks take.
const Shape kShapes[] = {{kBorder / 96 + 2, 96}, {kBorder / 1024 + 1, 1024}};
constexpr Type kTypes[] = {Type::kFloat, Type::kBFloat16};

class OpKernelBorder : public EmulatedKernels {
 protected:
  void TearDown() override {
    EXPECT_TRUE(emulation::single_blocks().empty()) << "a launch is missing";
    emulation::single_blocks().clear();
  }

  /// Runs a kernel on all sides: cpu(arrays, rows), and launch(arrays) in the blocks that take the last row.
  template <class MakeArrays, class OnCpu, class Launch>
  static void run(const Shape& shape, const MakeArrays& make, const OnCpu& on_cpu, const Launch& launch,
                  const std::vector<uint64_t>& blocks) {
    on_cpu(make(Side{false, true}, int64_t{1}), int64_t{1});
    on_cpu(make(Side{false, false}, shape.rows), shape.rows);
    ASSERT_EQ(launch(make(Side{true, true}, int64_t{1}), nullptr), cudaSuccess);
    emulation::single_blocks().assign(blocks.begin(), blocks.end());
    ASSERT_EQ(launch(make(Side{true, false}, shape.rows), nullptr), cudaSuccess);
  }
};
INSTANTIATE_TEST_SUITE_P(Orders, OpKernelBorder, testing::Values(0, 7));

// Parts of as many rows as the library gives them.
int64_t parts_of(int64_t rows) { return std::clamp<int64_t>(rows / 8, 1, 1024); }

TEST_P(OpKernelBorder, Normalizes) {
  for (const Type type : kTypes) {
    for (const Shape& shape : kShapes) {
      const auto [rows, columns] = shape;
      BorderArray input(type, rows, columns, 1), residual(type, rows, columns, 2),
          output(type, rows, columns, 3), sum(type, rows, columns, 4), grad(type, rows, columns, 5),
          grad_input(type, rows, columns, 6);
      BorderArray mean(Type::kFloat, rows, 1, 7), rstd(Type::kFloat, rows, 1, 8);
      BorderArray weight(type, 1, columns, 9), bias(type, 1, columns, 10);
      run(
          shape,
          [&](Side side, int64_t n) {
            NormArrays a;
            a.input = input.on(side), a.residual = residual.on(side), a.weight = weight.on(side),
            a.bias = bias.on(side), a.output = output.on(side), a.sum = sum.on(side), a.mean = mean.on(side),
            a.rstd = rstd.on(side);
            a.rows = n, a.columns = shape.columns, a.eps = 1e-5, a.type = a.parameter_type = element(type);
            return a;
          },
          [](const NormArrays& a, int64_t n) { norm_simd(a, n - 1, n); }, &launch<NormArrays>,
          {shape.row_block()});
      EXPECT_EQ(output.difference(), "");
      EXPECT_EQ(sum.difference(), "");
      EXPECT_EQ(mean.difference(), "");
      EXPECT_EQ(rstd.difference(), "");

      const int64_t parts = parts_of(rows);
      BorderArray weights(Type::kFloat, parts, columns, 11), biases(Type::kFloat, parts, columns, 12);
      run(
          shape,
          [&](Side side, int64_t n) {
            NormBackwardArrays a;
            a.grad_output = grad.on(side), a.sum = sum.on(side), a.mean = mean.on(side),
            a.rstd = rstd.on(side), a.weight = weight.on(side), a.grad_input = grad_input.on(side),
            a.weight_parts = weights.on(side), a.bias_parts = biases.on(side);
            a.rows = {n, shape.columns, parts_of(n)}, a.type = a.parameter_type = element(type);
            return a;
          },
          [](const NormBackwardArrays& a, int64_t n) { norm_backward_simd(a, parts_of(n) - 1); },
          &launch<NormBackwardArrays>, {static_cast<uint64_t>(parts - 1)});
      EXPECT_EQ(grad_input.difference(), "");
      EXPECT_EQ(weights.difference(), "");
      EXPECT_EQ(biases.difference(), "");
    }
  }
}

TEST_P(OpKernelBorder, Activates) {
  for (const Type type : kTypes) {
    for (const Shape& shape : kShapes) {
      const auto [rows, columns] = shape;
      const int64_t parts = parts_of(rows);
      BorderArray input(type, rows, columns, 1), output(type, rows, columns, 2), grad(type, rows, columns, 3);
      BorderArray bias(type, 1, columns, 4), sums(Type::kFloat, parts, columns, 5);
      const auto gelu = [&](bool backward, bool has_bias) {
        return [&, backward, has_bias](Side side, int64_t n) {
          BiasGeluArrays a;
          a.backward = backward;
          a.input = input.on(side), a.bias = has_bias ? bias.on(side) : nullptr;
          a.grad_output = backward ? grad.on(side) : nullptr, a.output = output.on(side);
          a.bias_parts = backward && has_bias ? sums.on(side) : nullptr;
          a.rows = {n, shape.columns, parts_of(n)}, a.type = a.parameter_type = element(type);
          return a;
        };
      };
      run(shape, gelu(false, true),
          [&](const BiasGeluArrays& a, int64_t n) { bias_gelu_simd(a, (n - 1) * columns, n * columns); },
          &launch<BiasGeluArrays>, {shape.segment_block()});
      EXPECT_EQ(output.difference(), "");
      run(shape, gelu(true, false),
          [&](const BiasGeluArrays& a, int64_t n) {
            bias_gelu_backward_simd(a, (n - 1) * columns, n * columns, nullptr);
          },
          &launch<BiasGeluArrays>, {shape.segment_block()});
      EXPECT_EQ(output.difference(), "");
      run(shape, gelu(true, true),
          [&](const BiasGeluArrays& a, int64_t n) {
            float* const own = static_cast<float*>(a.bias_parts) + (a.rows.parts - 1) * columns;
            std::fill_n(own, columns, 0.0F);
            bias_gelu_backward_simd(a, first_row(a.rows, a.rows.parts - 1) * columns, n * columns, own);
          },
          &launch<BiasGeluArrays>, {shape.part_block(parts, elements_of_pack(type))});
      EXPECT_EQ(std::memcmp(output.row({true, false}), output.row({true, true}), 96 * size_of(type)), 0);
      EXPECT_EQ(std::memcmp(sums.row({true, false}), sums.row({true, true}), 96 * sizeof(float)), 0);
      EXPECT_EQ(std::memcmp(sums.row({false, false}), sums.row({false, true}), 96 * sizeof(float)), 0);

      // Halves of one tensor: rows lie at twice their width.
      BorderArray both(type, rows, 2 * columns, 6), grads(type, rows, 2 * columns, 7),
          half(type, rows, columns, 8);
      const auto swiglu = [&](bool backward) {
        return [&, backward](Side side, int64_t n) {
          const auto second = [&](BorderArray& array) {
            return static_cast<char*>(array.on(side)) + static_cast<size_t>(shape.columns) * size_of(type);
          };
          SwigluArrays a;
          a.backward = backward;
          a.gate = both.on(side), a.up = second(both);
          if (!backward) a.output = half.on(side);
          if (backward)
            a.grad_output = half.on(side), a.grad_gate = grads.on(side), a.grad_up = second(grads);
          a.gate_stride = a.up_stride = a.grad_gate_stride = a.grad_up_stride = 2 * shape.columns;
          a.rows = n, a.columns = shape.columns, a.type = element(type);
          return a;
        };
      };
      run(shape, swiglu(false), [](const SwigluArrays& a, int64_t n) { swiglu_simd(a, n - 1, n); },
          &launch<SwigluArrays>, {shape.segment_block()});
      EXPECT_EQ(half.difference(), "");
      run(shape, swiglu(true), [](const SwigluArrays& a, int64_t n) { swiglu_backward_simd(a, n - 1, n); },
          &launch<SwigluArrays>, {shape.segment_block()});
      EXPECT_EQ(grads.difference(), "");
    }
  }
}

// What is dropped depends on the index: the CPU's row and the device's are compared. The last shape's blocks
// of random words have numbers of more than 32 bits.
TEST_P(OpKernelBorder, Drops) {
  const Shape shapes[] = {kShapes[0], kShapes[1], {(int64_t{1} << 34) / 1024 + 1, 1024}};
  for (const Shape& shape : shapes) {
    const auto [rows, columns] = shape;
    const Type type = Type::kBFloat16;
    const int64_t parts = parts_of(rows);
    BorderArray values(type, rows, columns, 1), sums(Type::kFloat, parts, columns, 2);
    const Side cpu{false, false}, device{true, false};
    const std::vector<char> before(values.row(cpu), values.row(cpu) + columns * 2);
    const auto arrays = [&](Side side, bool has_sums) {
      DropoutArrays a;
      a.input = a.output = values.on(side), a.bias_parts = has_sums ? sums.on(side) : nullptr;
      a.rows = {shape.rows, shape.columns, parts}, a.philox = {77, 5};
      a.threshold = dropout_threshold(0.25), a.scale = 2;
      a.type = a.parameter_type = element(type);
      return a;
    };
    const auto compare = [&](int64_t count, const char* what) {
      EXPECT_EQ(std::memcmp(values.row(cpu), values.row(device), static_cast<size_t>(2 * count)), 0)
          << what << " " << rows;
      EXPECT_NE(std::memcmp(values.row(cpu), before.data(), static_cast<size_t>(2 * count)), 0) << what;
    };
    dropout_simd(arrays(cpu, false), (rows - 1) * columns, rows * columns, nullptr);
    emulation::single_blocks() = {shape.segment_block()};
    ASSERT_EQ(launch(arrays(device, false), nullptr), cudaSuccess);
    compare(columns, "dropout");
    float* const own = reinterpret_cast<float*>(sums.row(cpu));
    std::fill_n(own, columns, 0.0F);
    const DropoutArrays of_cpu = arrays(cpu, true);
    // Other rows of the part are 0 and stay so.
    dropout_simd(of_cpu, (rows - 1) * columns, rows * columns, own);
    if (rows > (int64_t{1} << 24)) continue;  // a part has more rows than a test has time for
    emulation::single_blocks() = {shape.part_block(parts, elements_of_pack(type))};
    ASSERT_EQ(launch(arrays(device, true), nullptr), cudaSuccess);
    compare(96, "dropout with sums");
    EXPECT_EQ(std::memcmp(sums.row(cpu), sums.row(device), 96 * sizeof(float)), 0);
  }
}

TEST_P(OpKernelBorder, TakesTheSoftmax) {
  for (const Type type : kTypes) {
    for (const Shape& shape : kShapes) {
      const auto [rows, columns] = shape;
      BorderArray scores(type, rows, columns, 1), mask(type, rows, columns, 2),
          output(type, rows, columns, 3);
      run(
          shape,
          [&](Side side, int64_t n) {
            MaskedSoftmaxArrays a;
            a.scores = scores.on(side), a.mask = mask.on(side), a.output = output.on(side);
            a.rows = n, a.columns = shape.columns, a.scale = 0.7, a.mask_dims = 1;
            a.mask_sizes[0] = n, a.mask_strides[0] = shape.columns;
            a.type = a.mask_type = element(type);
            return a;
          },
          [](const MaskedSoftmaxArrays& a, int64_t n) { masked_softmax_simd(a, n - 1, n); },
          &launch<MaskedSoftmaxArrays>, {shape.row_block()});
      EXPECT_EQ(output.difference(), "");
      run(
          shape,
          [&](Side side, int64_t n) {
            SoftmaxBackwardArrays a;
            a.grad_output = a.grad_input = scores.on(side), a.output = output.on(side);
            a.rows = n, a.columns = shape.columns, a.scale = 0.7, a.type = element(type);
            return a;
          },
          [](const SoftmaxBackwardArrays& a, int64_t n) { softmax_backward_simd(a, n - 1, n); },
          &launch<SoftmaxBackwardArrays>, {shape.row_block()});
      EXPECT_EQ(scores.difference(), "");
    }
  }
}

TEST_P(OpKernelBorder, TurnsHeads) {
  struct Case {
    Type type;
    Shape shape;
    int64_t rotary, pairs_of_thread;
  };
  // The last case has rows that are not aligned, and more threads than 32 bits count.
  const Case cases[] = {{Type::kFloat, kShapes[1], 1024, 4},
                        {Type::kBFloat16, kShapes[1], 1024, 8},
                        {Type::kBFloat16, {kBorder / 256 + 1, 513}, 512, 1}};
  for (const auto& [type, shape, rotary, pairs_of_thread] : cases) {
    const int64_t rows = shape.rows, columns = shape.columns, dim = rotary;
    BorderArray input(type, rows, columns, 1), output(type, rows, columns, 2);
    // The tables, too, are of so many elements.
    BorderArray cos(type, rows, columns, 3), sin(type, rows, columns, 4);
    const int64_t threads = dim / 2 / pairs_of_thread, all = (rows * threads + kThreads - 1) / kThreads;
    const int64_t block = (rows - 1) * threads / kThreads % std::min(all, int64_t{1} << 20);
    run(
        shape,
        [&](Side side, int64_t n) {
          RotaryArrays a;
          a.input = input.on(side), a.output = output.on(side);
          a.cos = cos.on(side), a.sin = sin.on(side);
          // One head at one position of so many sequences, which have tables of their own.
          a.batch = n, a.heads = 1, a.positions = 1, a.dim = a.rotary = dim;
          a.input_strides[0] = a.output_strides[0] = a.table_batch_stride = columns;
          a.type = a.table_type = element(type);
          return a;
        },
        [](const RotaryArrays& a, int64_t n) { rotary_simd(a, n - 1, n); }, &launch<RotaryArrays>,
        {static_cast<uint64_t>(block)});
    EXPECT_EQ(output.difference(), "");
  }
}

TEST_P(OpKernelBorder, TakesTheCrossEntropy) {
  for (const Type type : kTypes) {
    const Shape shape = kShapes[1];
    const auto [rows, columns] = shape;
    BorderArray logits(type, rows, columns, 1), losses(Type::kFloat, rows, 1, 2),
        gradients(Type::kFloat, rows, 1, 3);
    BorderArray targets(Type::kDouble, rows, 1, 4);  // int64 in the place of doubles
    targets.set_row<int64_t>({17});
    run(
        shape,
        [&](Side side, int64_t n) {
          CrossEntropyArrays a;
          a.logits = logits.on(side), a.targets = static_cast<const int64_t*>(targets.on(side));
          a.row_gradients = gradients.on(side), a.losses = losses.on(side);
          a.rows = n, a.columns = shape.columns, a.ignore_index = -100, a.type = element(type);
          return a;
        },
        [](const CrossEntropyArrays& a, int64_t n) { cross_entropy_simd(a, n - 1, n); },
        &launch<CrossEntropyArrays>, {block_of(rows - 1, rows, kThreads)});
    EXPECT_EQ(losses.difference(), "");
    EXPECT_EQ(logits.difference(), "");
  }
}

TEST_P(OpKernelBorder, SumsRowsOfAnEmbedding) {
  const Shape shape = kShapes[1];
  const auto [rows, columns] = shape;
  BorderArray grad(Type::kFloat, rows, columns, 1), indices(Type::kDouble, rows, 1, 2);
  // The last position's row of the table is its last. All other positions have row 0, and gradients of 0.
  SparseMemory of_cpu(static_cast<size_t>(rows * columns) * 4),
      of_device(static_cast<size_t>(rows * columns) * 4);
  indices.set_row<int64_t>({rows - 1});
  const auto arrays = [&](Side side, void* weight) {
    EmbeddingGradientArrays a;
    a.grad_output = grad.on(side), a.indices = static_cast<const int64_t*>(indices.on(side));
    a.grad_weight = weight, a.positions = a.num_embeddings = shape.rows, a.dim = shape.columns;
    return a;
  };
  const std::vector<int64_t> next(static_cast<size_t>(rows), -1);
  std::vector<int64_t> first(static_cast<size_t>(rows), -1);
  first.back() = rows - 1;
  const int64_t taken[] = {rows - 1};
  embedding_gradient_simd(arrays({false, false}, of_cpu.data()), {taken, first.data(), next.data()}, 0, 1);
  emulation::single_blocks() = {shape.segment_block()};
  ASSERT_EQ(launch(arrays({true, false}, of_device.data()), nullptr), cudaSuccess);
  const size_t last = static_cast<size_t>((rows - 1) * columns) * 4, bytes = static_cast<size_t>(columns) * 4;
  EXPECT_EQ(std::memcmp(of_cpu.data() + last, grad.row({false, false}), bytes), 0);
  EXPECT_EQ(std::memcmp(of_device.data() + last, grad.row({true, false}), bytes), 0);
}

}  // namespace
}  // namespace deepspeed::kernels
