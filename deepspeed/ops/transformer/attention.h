// The attention of a transformer layer, forward and backward by hand: softmax(q k^T / sqrt(d) + mask),
// dropped, times v (Vaswani et al. 2017).
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/kernels/ops/dropout.h"

namespace deepspeed::ops {

struct AttentionCall {
  int64_t batch, sequence, heads;
  at::Tensor mask;         // additive, [batch or 1, heads or 1, sequence or 1, sequence]; undefined: none
  double dropout_ratio;    // of the probabilities
  kernels::Philox philox;  // of their mask
  bool has_own_seed;       // the mask is that of `philox`: torch's fused operators know its generator alone
  bool drops_again;        // backward makes the dropped probabilities again instead of keeping them
};

/// Says what computes an attention: products and a softmax whose probabilities are kept, or one of torch's
/// operators, which keeps a number a row of them (Dao et al. 2022).
enum class AttentionKind { kWritten, kFlashOfCpu, kFlash, kEfficient, kCudnn };

/// `kept` is what backward takes. Written attention keeps queries, keys and values by heads, the
/// probabilities, and, unless drops_again, the dropped ones. Torch's operators keep the input, the logarithm
/// of each row's sum and, on CUDA, the seed and the offset of their dropout.
struct AttentionResult {
  AttentionKind kind = AttentionKind::kWritten;
  at::Tensor context;  // [T, H] with T = batch * sequence
  std::vector<at::Tensor> kept;
};

/// qkv [T, 3H]: of each token the queries, the keys and the values of all heads, one after the other.
AttentionResult attention(const at::Tensor& qkv, const AttentionCall& call);

/// Returns the gradient of qkv, from what attention() returned.
at::Tensor attention_backward(const at::Tensor& grad_context, const AttentionResult& result,
                              const AttentionCall& call);

}  // namespace deepspeed::ops
