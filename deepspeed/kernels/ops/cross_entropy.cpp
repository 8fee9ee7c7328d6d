// A linear layer with cross entropy goes chunk by chunk over the rows: the logits of a chunk, their losses,
// their gradients in their place, and from those the products that the wanted gradients are sums of.
#include "deepspeed/kernels/ops/cross_entropy.h"

#include <algorithm>
#include <optional>

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros_like.h>

#include "deepspeed/base/error.h"
#include "deepspeed/kernels/arguments/array_argument.h"
#include "deepspeed/kernels/arguments/op_arguments.h"
#include "deepspeed/kernels/ops/dispatch.h"

namespace deepspeed::kernels {
namespace {

constexpr int64_t kChunkBytes = int64_t{64} << 20;
constexpr int64_t kLeastChunkRows = 32;  // fewer would make products of matrices slow
constexpr int64_t kProductBytes = int64_t{16} << 20;

void check_entropy_options(const CrossEntropyOptions& options) {
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    raise<UsageError>("label_smoothing is ", options.label_smoothing, ", expected a number in [0, 1]");
  }
}

/// Returns the contiguous targets. On the CPU each is looked at.
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

/// Writes the losses of rows, and with `row_gradients` the gradients of their logits. All is checked.
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
  run_op(logits.device(), &cross_entropy_cpu, &CudaKernels::cross_entropy, arrays);
}

/// The arguments of a linear layer, checked and contiguous.
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
  if (rows.weight.scalar_type() != rows.hidden.scalar_type() ||
      rows.weight.device() != rows.hidden.device()) {
    raise<UsageError>("weight has dtype ", rows.weight.scalar_type(), " on ", rows.weight.device(),
                      ", expected ", rows.hidden.scalar_type(), " on ", rows.hidden.device(), ", as hidden");
  }
  if (given.bias.defined())
    rows.bias = op_input_like("bias", given.bias, "a column of weight", rows.weight.select(1, 0));
  rows.targets = checked_targets(given.targets, rows.hidden, rows.classes(), options.ignore_index);
  rows.row_gradients = checked_row_gradients(given.row_gradients, rows.hidden);
  const bool wants = wanted.hidden || wanted.weight || wanted.bias;
  if (wants && !rows.row_gradients.defined()) {
    raise<UsageError>(
        "row_gradients is undefined, expected the losses' gradients, of which the wanted ones are made");
  }
  if (!wants) rows.row_gradients = at::Tensor();
  if (wanted.bias && !rows.bias.defined()) raise<UsageError>("bias is undefined, but its gradient is wanted");
  return rows;
}

int64_t rows_of_chunk(const LinearRows& rows, int64_t wanted) {
  if (wanted < 0) raise<UsageError>("chunk_rows is ", wanted, ", expected a number of rows, or 0");
  // In 16 bits a host has a chunk of half the bytes, beside the fp32 sums of the weight. A GPU has memory,
  // and adds to these sums as seldom as it can.
  const size_t size =
      rows.hidden.is_cpu() ? std::max<size_t>(4, rows.hidden.element_size()) : rows.hidden.element_size();
  const int64_t bytes_of_row = rows.classes() * static_cast<int64_t>(size);
  const int64_t chosen = wanted != 0 ? wanted : std::max(kLeastChunkRows, kChunkBytes / bytes_of_row);
  return std::min(chosen, rows.rows());
}

/// Sums products logits_gradient^T hidden over the chunks. Where 16 bits would round each sum, it is fp32,
/// and a product goes into it slice by slice.
class WeightSum {
 public:
  WeightSum(const LinearRows& rows, bool has_one_chunk)
      : weight_(rows.weight),
        sum_(at::empty_like(
            weight_, has_one_chunk ? weight_.options() : weight_.options().dtype(wide_dtype(weight_)))) {}

  void add(const at::Tensor& logits_gradient, const at::Tensor& hidden) {
    const double kept = is_first_ ? 0 : 1;  // with 0 the sum's elements, which are not set, are not read
    is_first_ = false;
    if (sum_.scalar_type() == hidden.scalar_type()) {
      at::addmm_out(sum_, sum_, logits_gradient.t(), hidden, kept);
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
  at::Tensor result() const { return is_first_ ? at::zeros_like(weight_) : sum_.to(weight_.scalar_type()); }

 private:
  at::Tensor weight_, sum_;
  bool is_first_ = true;
};

void write_logits(const LinearRows& rows, const at::Tensor& hidden, at::Tensor& logits) {
  if (rows.bias.defined()) {
    at::addmm_out(logits, rows.bias, hidden, rows.weight.t());
  } else {
    at::mm_out(logits, hidden, rows.weight.t());
  }
}

}  // namespace

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
  const LinearRows rows = checked_linear({hidden, weight, bias, targets, row_gradients}, wanted, options);
  const int64_t step = rows_of_chunk(rows, chunk_rows);
  LinearCrossEntropy result;
  result.losses = at::empty({rows.rows()}, rows.hidden.options().dtype(wide_dtype(rows.hidden)));
  if (wanted.hidden) result.gradients.hidden = at::empty_like(rows.hidden);
  std::optional<WeightSum> weight_sum;
  if (wanted.weight) weight_sum.emplace(rows, step == rows.rows());
  at::Tensor bias_sum;
  if (wanted.bias) bias_sum = at::zeros_like(rows.bias, rows.bias.options().dtype(wide_dtype(rows.bias)));
  at::Tensor all_logits = at::empty({step, rows.classes()}, rows.hidden.options());
  for (int64_t begin = 0; begin < rows.rows(); begin += step) {
    const int64_t count = std::min(step, rows.rows() - begin);
    const auto chunk_of = [&](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.narrow(0, begin, count) : tensor;
    };
    const at::Tensor chunk = chunk_of(rows.hidden);
    at::Tensor logits = all_logits.narrow(0, 0, count);
    write_logits(rows, chunk, logits);
    run_rows(logits, chunk_of(rows.targets), chunk_of(rows.row_gradients), options, chunk_of(result.losses));
    if (wanted.hidden) {
      at::Tensor grad_hidden = chunk_of(result.gradients.hidden);
      at::mm_out(grad_hidden, logits, rows.weight);
    }
    if (wanted.weight) weight_sum->add(logits, chunk);
    if (wanted.bias) bias_sum.add_(logits.sum(0, false, bias_sum.scalar_type()));
  }
  all_logits.reset();  // before the sum of 16 bits is copied
  if (wanted.weight) result.gradients.weight = weight_sum->result();
  if (wanted.bias) result.gradients.bias = bias_sum.to(rows.bias.scalar_type());
  return result;
}

}  // namespace deepspeed::kernels
