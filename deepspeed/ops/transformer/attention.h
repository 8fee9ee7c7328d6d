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
  bool drops_again;        // backward makes the dropped probabilities again instead of keeping them
};

/// `kept` is what backward takes. With dropout these are queries, keys and values by heads, the
/// probabilities, and, unless drops_again, the dropped ones. Without, on the CPU, they are the input and a
/// number a row of the probabilities, which flash attention never has as a whole (Dao et al. 2022).
struct AttentionResult {
  at::Tensor context;  // [T, H] with T = batch * sequence
  std::vector<at::Tensor> kept;
};

/// qkv [T, 3H]: of each token the queries, the keys and the values of all heads, one after the other.
AttentionResult attention(const at::Tensor& qkv, const AttentionCall& call);

/// Returns the gradient of qkv. `context` and `kept` are what attention() returned.
at::Tensor attention_backward(const at::Tensor& grad_context, const at::Tensor& context,
                              const std::vector<at::Tensor>& kept, const AttentionCall& call);

}  // namespace deepspeed::ops
