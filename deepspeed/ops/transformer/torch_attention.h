// Attention by torch's fused operators: flash attention on the CPU, and flash, memory-efficient or cuDNN's
// attention on CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include "deepspeed/ops/transformer/attention.h"

namespace deepspeed::ops {

/// Returns the operator of torch that can compute a call. If none can, returns kWritten, the library's own.
///
/// On the CPU flash attention takes calls without dropout. On CUDA torch chooses by the sizes, the device and
/// its own switches (torch.backends.cuda.enable_flash_sdp() and others). On CUDA no operator takes float64,
/// heads whose size is not a multiple of 8, a dropout ratio of 1, or a dropout with its own seed. In 16 bits
/// none takes a mask that differs between heads or queries, because the operator would round it to 16 bits.
AttentionKind torch_attention_kind(const at::Tensor& qkv, const AttentionCall& call);

/// Computes attention() by an operator that torch_attention_kind() returned.
AttentionResult torch_attention(const at::Tensor& qkv, const AttentionCall& call, AttentionKind kind);
at::Tensor torch_attention_backward(const at::Tensor& grad_context, const AttentionResult& result,
                                    const AttentionCall& call);

}  // namespace deepspeed::ops
