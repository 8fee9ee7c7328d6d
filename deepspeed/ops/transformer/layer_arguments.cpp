#include "deepspeed/ops/transformer/layer_arguments.h"

#include <cstdint>
#include <limits>
#include <vector>

#include <ATen/ops/zeros.h>

#include "deepspeed/base/error.h"

namespace deepspeed::ops {
namespace {

// Number added to the scores of a token that a boolean mask hides. It is finite, so a fully hidden row is not
// nan.
constexpr double kUnseen = std::numeric_limits<float>::lowest();

bool is_computed(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf || dtype == at::kDouble;
}

}  // namespace

std::string layer_name(const DeepSpeedTransformerConfig& config) {
  return message("transformer layer ", config.layer_id);
}

void check_states(const at::Tensor& x, const DeepSpeedTransformerConfig& config) {
  if (!x.defined() || x.dim() != 3 || x.numel() == 0) {
    raise<UsageError>(layer_name(config), ": hidden_states: got ",
                      x.defined() ? message("sizes ", x.sizes()) : "no tensor",
                      ", expected [batch, sequence, hidden_size], none of them 0");
  }
  if (!is_computed(x.scalar_type())) {
    raise<UsageError>(layer_name(config), ": hidden_states: got ", x.scalar_type(),
                      ", expected float32, bfloat16, float16 or float64");
  }
  if (config.heads < 1 || x.size(2) % config.heads != 0) {
    raise<UsageError>(layer_name(config), ": heads: got ", config.heads,
                      ", expected a divisor of hidden_size, ", x.size(2));
  }
  if (config.fp16 && x.scalar_type() != at::kHalf) {
    raise<UsageError>(layer_name(config), ": hidden_states: got ", x.scalar_type(),
                      ", expected float16, since the config says fp16");
  }
  if (config.batch_size > 0 && x.size(0) > config.batch_size) {
    raise<UsageError>(layer_name(config), ": hidden_states: got ", x.size(0),
                      " sequences, batch_size allows ", config.batch_size,
                      "; a config without batch_size takes any number");
  }
}

void check_weights(const at::Tensor& x, const TransformerWeights& weights,
                   const DeepSpeedTransformerConfig& config) {
  const std::string name = layer_name(config);
  for (const auto& entry : kTransformerWeights) {
    if (!(weights.*entry.member).defined()) raise<UsageError>(name, ": ", entry.name, " is undefined");
  }
  const int64_t hidden = x.size(2), inter = weights.inter_b.numel();
  for (const auto& entry : kTransformerWeights) {
    const char* const key = entry.name;
    const at::Tensor& weight = weights.*entry.member;
    const std::vector<int64_t> sizes = sizes_of(entry, hidden, inter);
    if (weight.sizes() != at::IntArrayRef(sizes)) {
      raise<UsageError>(name, ": ", key, ": got sizes ", weight.sizes(), ", expected ",
                        at::IntArrayRef(sizes), " for hidden_states of ", x.sizes());
    }
    if (weight.device() != x.device()) {
      raise<UsageError>(name, ": ", key, " is on ", weight.device(), ", hidden_states are on ", x.device());
    }
    const bool is_vector_of_fp32 = weight.dim() == 1 && weight.scalar_type() == at::kFloat;
    if (weight.scalar_type() != x.scalar_type() && !(is_vector_of_fp32 && x.scalar_type() != at::kDouble)) {
      raise<UsageError>(name, ": ", key, " is of ", weight.scalar_type(), ", hidden_states are of ",
                        x.scalar_type(), "; cast one of them by to()");
    }
  }
}

at::Tensor checked_mask(const at::Tensor& mask, const at::Tensor& x,
                        const DeepSpeedTransformerConfig& config) {
  if (!mask.defined()) return {};
  if (!mask.is_floating_point() && mask.scalar_type() != at::kBool) {
    raise<UsageError>(
        layer_name(config), ": attention_mask: got ", mask.scalar_type(),
        ", expected what is added to the scores (0 where a token is seen, -10000 else), or Bool");
  }
  const int64_t batch = x.size(0), sequence = x.size(1);
  const auto fits = [&](int64_t dim, int64_t size) { return mask.size(dim) == 1 || mask.size(dim) == size; };
  if (mask.dim() != 4 || !fits(0, batch) || !fits(1, config.heads) || !fits(2, sequence) ||
      mask.size(3) != sequence) {
    raise<UsageError>(layer_name(config), ": attention_mask: got sizes ", mask.sizes(), ", expected [", batch,
                      " or 1, ", config.heads, " or 1, ", sequence, " or 1, ", sequence, "]");
  }
  if (mask.device() != x.device()) {
    raise<UsageError>(layer_name(config), ": attention_mask is on ", mask.device(), ", hidden_states are on ",
                      x.device());
  }
  if (mask.requires_grad()) {
    raise<UsageError>(layer_name(config), ": no gradient comes to the attention_mask; detach() it");
  }
  const at::ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (mask.scalar_type() != at::kBool) return mask.to(type);
  return at::zeros(mask.sizes(), mask.options().dtype(type)).masked_fill_(mask.logical_not(), kUnseen);
}

}  // namespace deepspeed::ops
