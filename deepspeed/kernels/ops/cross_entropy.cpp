// A linear layer with cross entropy works on one chunk of rows at a time. It computes the chunk's logits and
// losses, overwrites the logits with their gradients, and adds the products for the wanted gradients. A GPU
// takes a few large chunks, or one, as memory allows (rows_of_gpu_chunk). It adds 16-bit products to fp32
// sums as it makes them.
//
// Without row_gradients the factor of the gradients is not known yet. In fp16 each stage is then scaled by a
// power of two that follows from the largest elements, so that nothing overflows and little underflows
// (HalfRange, WeightSum). The caller gets the inverses.
#include "deepspeed/kernels/ops/cross_entropy.h"

#include <algorithm>
#include <optional>

#include <ATen/ops/addmm.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/integers.h"
#include "deepspeed/device/accelerator/memory.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/arguments/op_arguments.h"
#include "deepspeed/kernels/ops/dispatch.h"

namespace deepspeed::kernels {
namespace {

constexpr int64_t kChunkBytes = int64_t{64} << 20;
constexpr int64_t kLeastChunkRows = 32;  // fewer rows would make matrix products slow
constexpr int64_t kGpuChunkBytes = int64_t{1} << 30;
constexpr int64_t kGpuPartOfMemory = 8;
constexpr int64_t kGpuTileRows = 128;  // a product's tile; the end of a chunk should not waste a part of one
constexpr int64_t kProductBytes = int64_t{16} << 20;

void check_entropy_options(const CrossEntropyOptions& options) {
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    raise<UsageError>("label_smoothing is ", options.label_smoothing, ", expected a number in [0, 1]");
  }
}

/// Returns the contiguous targets. Throws UsageError for a wrong shape, dtype or device, and on the CPU for a
/// target that is neither a class nor `ignore_index`.
at::Tensor checked_targets(const at::Tensor& targets, const at::Tensor& rows, int64_t classes,
                           int64_t ignore_index) {
  if (!targets.defined()) raise<UsageError>("targets is undefined, expected a tensor");
  if (targets.scalar_type() != at::kLong) {
    raise<UsageError>("targets has dtype ", targets.scalar_type(), ", expected Long");
  }
  if (targets.dim() != 1 || targets.size(0) != rows.size(0) || targets.device() != rows.device()) {
    raise<UsageError>("targets has shape ", targets.sizes(), " on ", targets.device(), ", expected [",
                      rows.size(0), "] on ", rows.device());
  }
  const at::Tensor contiguous = targets.contiguous();
  if (!contiguous.is_cpu()) return contiguous;
  const int64_t* const values = contiguous.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < contiguous.numel(); ++row) {
    if (values[row] == ignore_index || (values[row] >= 0 && values[row] < classes)) continue;
    raise<UsageError>("the target of row ", row, " is ", values[row], ", expected a class below ", classes,
                      " or ignore_index, ", ignore_index);
  }
  return contiguous;
}

at::Tensor checked_row_gradients(const at::Tensor& row_gradients, const at::Tensor& rows) {
  if (!row_gradients.defined()) return row_gradients;
  if (row_gradients.dim() != 1 || row_gradients.size(0) != rows.size(0) ||
      row_gradients.scalar_type() != wide_dtype(rows) || row_gradients.device() != rows.device()) {
    raise<UsageError>("row_gradients has shape ", row_gradients.sizes(), " and dtype ",
                      row_gradients.scalar_type(), " on ", row_gradients.device(), ", expected [",
                      rows.size(0), "] and ", wide_dtype(rows), " on ", rows.device());
  }
  return row_gradients.contiguous();
}

/// Writes the losses of rows and, given `row_gradients`, replaces the logits by their gradients. Expects
/// checked arguments.
void run_rows(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& row_gradients,
              const CrossEntropyOptions& options, const at::Tensor& losses) {
  if (logits.size(0) == 0) return;
  CrossEntropyArrays arrays;
  arrays.logits = logits.data_ptr();
  arrays.targets = targets.const_data_ptr<int64_t>();
  arrays.row_gradients = const_data(row_gradients);
  arrays.losses = losses.data_ptr();
  arrays.rows = logits.size(0);
  arrays.columns = logits.size(1);
  arrays.ignore_index = options.ignore_index;
  arrays.label_smoothing = options.label_smoothing;
  arrays.type = element_type(logits.scalar_type());
  run_op(logits.device(), arrays);
}

/// Holds the arguments of a linear layer, checked and contiguous.
struct LinearRows {
  at::Tensor hidden, weight, bias, targets, row_gradients;

  int64_t rows() const { return hidden.size(0); }
  int64_t classes() const { return weight.size(0); }
};

LinearRows checked_linear(const LinearRows& given, const WantedGradients& wanted,
                          const CrossEntropyOptions& options) {
  LinearRows rows;
  rows.hidden = op_input("hidden", given.hidden);
  if (rows.hidden.dim() != 2) {
    raise<UsageError>("hidden has shape ", rows.hidden.sizes(), ", expected [rows, features]");
  }
  rows.weight = op_input("weight", given.weight);
  if (rows.weight.dim() != 2 || rows.weight.size(1) != rows.hidden.size(1) || rows.weight.size(0) == 0) {
    raise<UsageError>("weight has shape ", rows.weight.sizes(), ", expected [classes, ", rows.hidden.size(1),
                      "], the features of hidden");
  }
  check_beside("weight", rows.weight, rows.hidden);
  if (given.bias.defined()) {
    rows.bias = op_input("bias", given.bias);
    check_beside("bias", rows.bias, rows.hidden);
    if (rows.bias.dim() != 1 || rows.bias.size(0) != rows.classes()) {
      raise<UsageError>("bias has shape ", rows.bias.sizes(), ", expected [", rows.classes(),
                        "], the classes of weight");
    }
  }
  rows.targets = checked_targets(given.targets, rows.hidden, rows.classes(), options.ignore_index);
  rows.row_gradients = checked_row_gradients(given.row_gradients, rows.hidden);
  if (!(wanted.hidden || wanted.weight || wanted.bias)) rows.row_gradients = at::Tensor();
  if (wanted.bias && !rows.bias.defined()) raise<UsageError>("bias is undefined, but its gradient is wanted");
  return rows;
}

int64_t rows_of_chunk(const LinearRows& rows, int64_t wanted, bool sums_weights) {
  if (wanted < 0) raise<UsageError>("chunk_rows is ", wanted, ", expected a number of rows, or 0");
  if (wanted != 0) return std::min(wanted, rows.rows());
  const auto size = static_cast<int64_t>(rows.weight.element_size());
  if (rows.weight.is_cuda()) {
    return rows_of_gpu_chunk(rows.rows(), rows.classes() * size,
                             device::cuda_available_bytes(rows.weight.get_device()), sums_weights);
  }
  // On the CPU a 16-bit chunk has half the bytes, to leave room for the fp32 sums of the weight.
  const int64_t bytes_of_row = rows.classes() * std::max<int64_t>(4, size);
  return std::min(std::max(kLeastChunkRows, kChunkBytes / bytes_of_row), rows.rows());
}

/// Returns the largest power of two up to a tensor's largest magnitude, fp32 []. It is 0 for zeros, and
/// infinity if an element is not finite.
at::Tensor power_within(const at::Tensor& tensor) {
  constexpr int64_t kExponentBits = 0x7f800000;
  const auto [least, most] = at::aminmax(tensor);
  const at::Tensor largest = at::maximum(least.neg(), most).to(at::kFloat);
  return largest.view(at::kInt).bitwise_and(kExponentBits).view(at::kFloat);
}

/// Returns the power of two that scales a tensor's largest magnitude to [2^14, 2^15]. It is fp32 [].
at::Tensor power_to_fill_half(const at::Tensor& tensor) {
  return power_within(tensor).reciprocal_().mul_(0x1p14).clamp_(0x1p-40, 0x1p40);
}

/// Returns whether cuBLAS can add 16-bit products to an fp32 sum as it makes them.
bool adds_wide_products(const LinearRows& rows) {
  return rows.weight.is_cuda() && rows.weight.element_size() == 2;
}

/// Holds powers of two, fp32 [], that keep fp16 numbers within their range. They apply while the gradient of
/// the losses is not known, and are 1 for other dtypes.
///
/// The magnitudes in a row of the softmax's gradient add up to at most 2. The hidden states' gradient is
/// therefore at most 2 max |weight|, and a chunk's part of the weight's gradient at most rows * max |hidden|.
/// Multiplied by these powers, both stay below 2^15. The softmax itself is exact down to 2^-22, and not 0
/// down to 2^-33. fp32 products take the hidden states unchanged.
struct HalfRange {
  HalfRange(const LinearRows& rows, int64_t chunk_rows)
      : logits(at::ones({}, rows.hidden.options().dtype(wide_dtype(rows.hidden)))), hidden(logits) {
    if (rows.hidden.scalar_type() != at::kHalf || rows.rows() == 0 || rows.hidden.size(1) == 0) return;
    logits = power_within(rows.weight).reciprocal_().mul_(0x1p13).clamp_(0x1p-4, 0x1p8);
    if (rows.weight.scalar_type() != at::kHalf || adds_wide_products(rows)) return;
    int64_t power_of_rows = 1;
    while (power_of_rows < chunk_rows) power_of_rows *= 2;
    hidden = power_within(rows.hidden)
                 .mul_(logits)
                 .reciprocal_()
                 .mul_(0x1p14 / static_cast<double>(power_of_rows))
                 .clamp_(0x1p-24, 1);
  }

  /// Returns a chunk of hidden states, scaled for the product that gives the weight's gradient.
  at::Tensor scaled(const at::Tensor& chunk) const {
    if (chunk.scalar_type() != at::kHalf || chunk.is_cuda()) return chunk;
    const at::Tensor result = at::empty_like(chunk);
    multiply_by(chunk, hidden, result);
    return result;
  }

  at::Tensor logits;  // for the logits' gradients
  at::Tensor hidden;  // for the hidden states in the weight's products
};

/// Sums the products logits_gradient^T hidden over the chunks. The sum is fp32 if several chunks would
/// otherwise round it to 16 bits each time. A product that cannot be added directly is added slice by slice.
/// For fp16, which would overflow, even one chunk has an fp32 sum if products can be fp32.
class WeightSum {
 public:
  WeightSum(const LinearRows& rows, bool has_one_chunk)
      : weight_(rows.weight), adds_wide_(adds_wide_products(rows)) {
    const bool is_narrow = has_one_chunk && !(adds_wide_ && weight_.scalar_type() == at::kHalf);
    sum_ =
        at::empty_like(weight_, is_narrow ? weight_.options() : weight_.options().dtype(wide_dtype(weight_)));
  }

  void add(const at::Tensor& logits_gradient, const at::Tensor& hidden) {
    const double kept = is_first_ ? 0 : 1;  // 0 keeps addmm from reading the uninitialized sum
    is_first_ = false;
    if (sum_.scalar_type() == hidden.scalar_type()) {
      at::addmm_out(sum_, sum_, logits_gradient.t(), hidden, kept);
      return;
    }
    if (adds_wide_) {
      at::addmm_out(sum_, sum_, logits_gradient.t(), hidden, sum_.scalar_type(), kept);
      return;
    }
    const int64_t bytes_of_class = sum_.size(1) * 2;
    const int64_t step = std::max<int64_t>(1, kProductBytes / std::max<int64_t>(1, bytes_of_class));
    for (int64_t first = 0; first < sum_.size(0); first += step) {
      const int64_t count = std::min(step, sum_.size(0) - first);
      const at::Tensor product = at::mm(logits_gradient.narrow(1, first, count).t(), hidden);
      at::Tensor slice = sum_.narrow(0, first, count);
      kept == 0 ? slice.copy_(product) : slice.add_(product);
    }
  }
  /// Returns the sum in the weight's dtype; the sum cannot be used afterwards. With `factor` and an fp16
  /// weight, an fp32 sum is scaled to fill the range of fp16, and `factor` is divided by that scale.
  at::Tensor result(at::Tensor* factor) {
    if (is_first_) return at::zeros_like(weight_);
    if (factor != nullptr) fill_half(sum_, weight_.scalar_type(), *factor);
    return sum_.to(weight_.scalar_type());
  }

  /// Scales a wider sum to fill fp16's range, and divides `factor` by the scale. Does nothing for other
  /// dtypes.
  static void fill_half(const at::Tensor& sum, at::ScalarType dtype, at::Tensor& factor) {
    if (dtype != at::kHalf || sum.scalar_type() == at::kHalf || sum.numel() == 0) return;
    const at::Tensor power = power_to_fill_half(sum);
    sum.mul_(power);
    factor = factor.div(power);
  }

 private:
  at::Tensor weight_, sum_;
  bool adds_wide_, is_first_ = true;
};

void write_logits(const LinearRows& rows, const at::Tensor& hidden, at::Tensor& logits) {
  if (rows.bias.defined()) {
    at::addmm_out(logits, rows.bias.to(logits.scalar_type()), hidden, rows.weight.t());
  } else {
    at::mm_out(logits, hidden, rows.weight.t());
  }
}

void write_product(const at::Tensor& a, const at::Tensor& b, at::Tensor result) {
  if (result.scalar_type() == a.scalar_type()) {
    at::mm_out(result, a, b);
  } else {
    result.copy_(at::mm(a, b));
  }
}

}  // namespace

int64_t rows_of_gpu_chunk(int64_t rows, int64_t bytes_of_row, int64_t available_bytes, bool sums_weights) {
  const int64_t share = available_bytes / kGpuPartOfMemory;
  if (sums_weights && rows <= share / bytes_of_row) return rows;
  const int64_t bytes = std::clamp(share, kChunkBytes, kGpuChunkBytes);
  const int64_t most = std::max(kLeastChunkRows, bytes / bytes_of_row);
  if (rows <= most) return rows;
  const int64_t chunks = (rows + most - 1) / most;
  const int64_t even = (rows + chunks - 1) / chunks;
  return std::min(most, round_up(even, kGpuTileRows));
}

at::Tensor cross_entropy_(const at::Tensor& logits, const at::Tensor& given_targets,
                          const at::Tensor& given_row_gradients, const CrossEntropyOptions& options) {
  check_op_input("logits", logits);
  check_entropy_options(options);
  if (logits.dim() != 2 || !logits.is_contiguous() || logits.size(1) == 0) {
    raise<UsageError>("logits has shape ", logits.sizes(), " and strides ", logits.strides(),
                      ", expected contiguous [rows, classes]");
  }
  const at::Tensor targets = checked_targets(given_targets, logits, logits.size(1), options.ignore_index);
  const at::Tensor row_gradients = checked_row_gradients(given_row_gradients, logits);
  const at::Tensor losses = at::empty({logits.size(0)}, logits.options().dtype(wide_dtype(logits)));
  run_rows(logits, targets, row_gradients, options, losses);
  return losses;
}

LinearCrossEntropy linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                        const at::Tensor& bias, const at::Tensor& targets,
                                        const at::Tensor& row_gradients, const WantedGradients& wanted,
                                        const CrossEntropyOptions& options, int64_t chunk_rows) {
  check_entropy_options(options);
  LinearRows rows = checked_linear({hidden, weight, bias, targets, row_gradients}, wanted, options);
  const int64_t step = rows_of_chunk(rows, chunk_rows, wanted.weight);
  std::optional<HalfRange> range;
  if ((wanted.hidden || wanted.weight || wanted.bias) && !rows.row_gradients.defined()) {
    range.emplace(rows, step);
    rows.row_gradients = range->logits.expand({rows.rows()}).contiguous();
  }
  LinearCrossEntropy result;
  result.losses = at::empty({rows.rows()}, rows.hidden.options().dtype(wide_dtype(rows.hidden)));
  if (wanted.hidden) result.gradients.hidden = at::empty_like(rows.hidden);
  std::optional<WeightSum> weight_sum;
  if (wanted.weight) weight_sum.emplace(rows, step == rows.rows());
  at::Tensor bias_sum;
  if (wanted.bias) bias_sum = at::zeros_like(rows.bias, rows.bias.options().dtype(wide_dtype(rows.bias)));
  at::Tensor all_logits = at::empty({step, rows.classes()}, rows.weight.options());
  for (int64_t begin = 0; begin < rows.rows(); begin += step) {
    const int64_t count = std::min(step, rows.rows() - begin);
    const auto chunk_of = [&](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.narrow(0, begin, count) : tensor;
    };
    const at::Tensor chunk = chunk_of(rows.hidden).to(rows.weight.scalar_type());
    at::Tensor logits = all_logits.narrow(0, 0, count);
    write_logits(rows, chunk, logits);
    run_rows(logits, chunk_of(rows.targets), chunk_of(rows.row_gradients), options, chunk_of(result.losses));
    if (wanted.hidden) write_product(logits, rows.weight, chunk_of(result.gradients.hidden));
    if (wanted.weight) weight_sum->add(logits, range ? range->scaled(chunk) : chunk);
    if (wanted.bias) bias_sum.add_(logits.sum(0, false, bias_sum.scalar_type()));
  }
  all_logits.reset();                        // frees memory before the 16-bit copy of the sum is made
  at::Tensor of_hidden, of_weight, of_bias;  // the factors
  if (range) {
    of_hidden = of_bias = range->logits.reciprocal();
    of_weight = of_hidden.div(range->hidden);
  }
  if (wanted.weight) result.gradients.weight = weight_sum->result(range ? &of_weight : nullptr);
  if (wanted.bias) {
    if (range) WeightSum::fill_half(bias_sum, rows.bias.scalar_type(), of_bias);
    result.gradients.bias = bias_sum.to(rows.bias.scalar_type());
  }
  if (range) result.gradients.factors = at::stack({of_hidden, of_weight, of_bias});
  return result;
}

}  // namespace deepspeed::kernels
