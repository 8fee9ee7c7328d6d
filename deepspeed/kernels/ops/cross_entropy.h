// Cross entropy of logits, and of a linear layer whose logits are never kept: only one chunk of them exists
// at a time.
//
// Dtypes: fp32, bf16, fp16 or fp64; sums and losses are fp32 (fp64). Targets are int64. Devices: CPU and
// CUDA.
#pragma once

#include <ATen/core/Tensor.h>

namespace deepspeed::kernels {

struct CrossEntropyOptions {
  int64_t ignore_index = -100;   // rows with this target have loss 0 and gradient 0
  double label_smoothing = 0.0;  // in [0, 1]: this part of the target is spread evenly over all classes
};

/// Returns the loss of each row, fp32 (fp64) [rows], for contiguous logits [rows, classes]. `row_gradients`
/// are the gradients of the losses, in the losses' dtype and shape. If they are given, the logits are
/// overwritten with the logits' gradient. A target outside [0, classes) is a UsageError on the CPU. On CUDA
/// nothing waits for a result, so that row's loss and gradient become nan.
at::Tensor cross_entropy_(const at::Tensor& logits, const at::Tensor& targets,
                          const at::Tensor& row_gradients, const CrossEntropyOptions& options);

struct LinearCrossEntropyGradients {
  at::Tensor hidden, weight;  // like hidden and weight; undefined if not wanted
  at::Tensor bias;            // like bias; undefined without a bias or if not wanted
  // Powers of two, fp32 (fp64) [3], one each for hidden, weight and bias. The caller must still multiply
  // these gradients by them. Undefined with row_gradients.
  at::Tensor factors;
};

struct LinearCrossEntropy {
  at::Tensor losses;  // of each row, fp32 (fp64) [rows]
  LinearCrossEntropyGradients gradients;
};

struct WantedGradients {
  bool hidden = false, weight = false, bias = false;
};

/// Returns how many of the `rows` rows of logits a GPU takes at a time.
///
/// Fewer chunks mean larger products and fewer passes over the sums of the weight's gradient. If that
/// gradient is wanted (`sums_weights`), all rows are one chunk if they fit an eighth of the available memory.
/// Otherwise chunks have one size: at most this eighth and at most 1 GiB, but 64 MiB and 32 rows are always
/// allowed.
int64_t rows_of_gpu_chunk(int64_t rows, int64_t bytes_of_row, int64_t available_bytes, bool sums_weights);

/// Returns the losses and gradients of a linear layer's logits, hidden weight^T + bias. The wanted gradients
/// are those of sum(row_gradients * losses). `hidden` is [rows, features], `weight` [classes, features],
/// `bias` [classes] or undefined. Weight and bias have the dtype of hidden, or fp32 next to 16-bit hidden
/// states. Logits have the dtype of weight and exist for `chunk_rows` rows at a time. 0 takes as many as fit
/// 64 MiB, at least 32; on a GPU it takes rows_of_gpu_chunk(). Sums over chunks are fp32 (fp64).
///
/// Without row_gradients the gradients are those of the sum of losses, divided by `factors`. This keeps fp16
/// gradients in the middle of the range, since a loss scale that comes later could not restore zeros. Other
/// dtypes have factors of 1.
LinearCrossEntropy linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                        const at::Tensor& bias, const at::Tensor& targets,
                                        const at::Tensor& row_gradients, const WantedGradients& wanted,
                                        const CrossEntropyOptions& options, int64_t chunk_rows = 0);

}  // namespace deepspeed::kernels
