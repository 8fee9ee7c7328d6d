// Cross entropy of logits, and of a linear layer whose logits are never kept: at most a chunk of rows of them
// exists.
//
// Dtypes: fp32, bf16, fp16 or fp64; sums and losses are fp32 (fp64). Targets are int64. CPU and CUDA.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

struct CrossEntropyOptions {
  int64_t ignore_index = -100;   // rows with this target have loss and gradient 0
  double label_smoothing = 0.0;  // in [0, 1]: this part of the target is even over all classes
};

/// Returns the loss of each row, fp32 (fp64) [rows], of contiguous logits [rows, classes]. With
/// `row_gradients` (of the losses, dtype and shape of theirs; undefined for none) it writes the logits'
/// gradient over the logits. A target outside of [0, classes) is a UsageError on the CPU; on CUDA, where
/// nothing waits for a result, that row's loss and gradient are nan.
at::Tensor cross_entropy_(const at::Tensor& logits, const at::Tensor& targets,
                          const at::Tensor& row_gradients, const CrossEntropyOptions& options);

struct LinearCrossEntropyGradients {
  at::Tensor hidden, weight;  // as hidden and weight; undefined where not wanted
  at::Tensor bias;            // as bias; undefined without one
  // fp32 (fp64) [3], powers of two that these three are still to be multiplied by; undefined with
  // row_gradients.
  at::Tensor factors;
};

struct LinearCrossEntropy {
  at::Tensor losses;  // of the rows, fp32 (fp64) [rows]
  LinearCrossEntropyGradients gradients;
};

struct WantedGradients {
  bool hidden = false, weight = false, bias = false;
};

/// Returns how many rows of logits a GPU takes at a time, of the `rows` that there are.
///
/// Fewer chunks are larger products, and fewer passes over the sums of the weight's gradient. Where these are
/// wanted it is all rows, if an eighth of the available memory holds them. Else chunks of one size take at
/// most a GiB each and this eighth, but 64 MiB or 32 rows where that is more.
int64_t rows_of_gpu_chunk(int64_t rows, int64_t bytes_of_row, int64_t available_bytes, bool sums_weights);

/// Returns the losses of logits hidden weight^T + bias, and the wanted gradients of the sum of row_gradients
/// * losses. `hidden` is [rows, features], `weight` [classes, features], `bias` [classes] or undefined;
/// weight and bias have the dtype of hidden or, beside 16 bits, fp32. Logits have the dtype of weight, and
/// exist for `chunk_rows` rows at a time; 0 takes as many as fit 64 MiB, at least 32, and on a GPU
/// rows_of_gpu_chunk(). Sums over chunks are fp32 (fp64).
///
/// Without row_gradients the gradients are those of the sum of losses, but for `factors`: fp16 has them in
/// the middle of its range, since a loss scale may come later and would find zeros else. Other dtypes have
/// factors of 1.
LinearCrossEntropy linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                        const at::Tensor& bias, const at::Tensor& targets,
                                        const at::Tensor& row_gradients, const WantedGradients& wanted,
                                        const CrossEntropyOptions& options, int64_t chunk_rows = 0);

}  // namespace deepspeed::kernels
