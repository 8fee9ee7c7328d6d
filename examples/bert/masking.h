// The masked language task (Devlin et al. 2018).
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace bert {

struct MaskedTokens {
  at::Tensor tokens;   // as the model sees them
  at::Tensor targets;  // the tokens that it is to foretell, elsewhere kIgnored
};

/// Chooses 15 % of the tokens, at least one. Of these 80 % become `mask_token`, 10 % any of 0 to mask_token -
/// 1, and 10 % stay. tokens: (B, T) int64. Equal seeds choose alike.
MaskedTokens mask_tokens(const at::Tensor& tokens, int64_t mask_token, uint64_t seed);

}  // namespace bert
