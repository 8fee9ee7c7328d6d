// The attention of a transformer layer, with a backward written by hand: dropout(softmax(q k^T / sqrt(d) +
// mask)) v (Vaswani et al. 2017).
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/kernels/ops/dropout.h"

namespace deepspeed::ops {

struct AttentionCall {
  int64_t batch, sequence, heads;
  at::Tensor mask;         // additive, [batch or 1, heads or 1, sequence or 1, sequence]; undefined: none
  double dropout_ratio;    // for the probabilities
  kernels::Philox philox;  // draws their dropout mask
  bool has_own_seed;  // `philox` must draw the dropout mask; torch's fused operators use torch's generator
  bool drops_again;   // backward computes the dropped probabilities again instead of keeping them
};

/// Says what computes an attention.
///
/// kWritten multiplies matrices and keeps all probabilities. The others are operators of torch, which keep
/// only one number for each row of probabilities (Dao et al. 2022).
enum class AttentionKind { kWritten, kFlashOfCpu, kFlash, kEfficient, kCudnn };

/// Holds the output of an attention, and the tensors that backward needs (`kept`).
///
/// This library's own operator (kWritten) keeps queries, keys and values, divided by heads, and the
/// probabilities. It also keeps the probabilities after dropout, unless backward computes them again
/// (drops_again). Torch's operators keep the input, the logarithm of the sum of each row's exponentials and,
/// on CUDA, the seed and the offset of their dropout.
struct AttentionResult {
  AttentionKind kind = AttentionKind::kWritten;
  at::Tensor context;  // [T, H] with T = batch * sequence
  std::vector<at::Tensor> kept;
};

/// Computes the attention of qkv, [T, 3H].
///
/// Each token's row has the queries of all heads, then the keys, then the values.
AttentionResult attention(const at::Tensor& qkv, const AttentionCall& call);

/// Returns the gradient of qkv. `result` is what attention() returned.
at::Tensor attention_backward(const at::Tensor& grad_context, const AttentionResult& result,
                              const AttentionCall& call);

}  // namespace deepspeed::ops
