// Attention by torch's fused operators: flash attention of the CPU, and flash, memory-efficient and cuDNN's
// attention of CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include "deepspeed/ops/transformer/attention.h"

namespace deepspeed::ops {

/// Returns which operator takes a call, kWritten where none does.
///
/// On the CPU it is flash attention for a call without dropout. On CUDA torch chooses, by the sizes, the
/// device and its own switches (torch.backends.cuda.enable_flash_sdp() and others). None takes float64, a
/// dropout of 1 or with a seed of its own, nor, in 16 bits, to which it would be rounded, a mask of more than
/// a row of keys a sequence.
AttentionKind torch_attention_kind(const at::Tensor& qkv, const AttentionCall& call);

/// Does what attention() does, by an operator that torch_attention_kind() has returned.
AttentionResult torch_attention(const at::Tensor& qkv, const AttentionCall& call, AttentionKind kind);
at::Tensor torch_attention_backward(const at::Tensor& grad_context, const AttentionResult& result,
                                    const AttentionCall& call);

}  // namespace deepspeed::ops
