#include "masking.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>

#include "bert.h"

namespace bert {
namespace {

constexpr double kChosen = 0.15;
constexpr double kMasked = 0.8, kReplaced = 0.1;  // shares of the chosen ones

}  // namespace

MaskedTokens mask_tokens(const at::Tensor& tokens, int64_t mask_token, uint64_t seed) {
  const auto generator = at::detail::createCPUGenerator(seed);
  const auto draw = [&] { return at::rand(tokens.sizes(), generator, at::kFloat); };
  at::Tensor score = draw();
  const at::Tensor chosen = score.lt(kChosen).logical_or_(score.eq(score.min()));
  const at::Tensor kind = draw();
  const at::Tensor any = at::randint(mask_token, tokens.sizes(), generator, at::kLong);
  const auto on_device = [&](const at::Tensor& tensor) { return tensor.to(tokens.device()); };
  const at::Tensor masked = chosen.logical_and(kind.lt(kMasked));
  const at::Tensor replaced = chosen.logical_and(kind.ge(kMasked)).logical_and_(kind.lt(kMasked + kReplaced));
  return {tokens.masked_fill(on_device(masked), mask_token)
              .where(on_device(replaced.logical_not()), on_device(any)),
          tokens.masked_fill(on_device(chosen.logical_not()), kIgnored)};
}

}  // namespace bert
