#include "deepspeed/ops/modules.h"

#include <cmath>

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "deepspeed/base/error.h"
#include "deepspeed/ops/autograd/function.h"

namespace deepspeed::ops {

LayerNormImpl::LayerNormImpl(int64_t size, double eps)
    : weight(register_parameter("weight", at::ones({size}))),
      bias(register_parameter("bias", at::zeros({size}))),
      eps_(eps) {}

at::Tensor LayerNormImpl::forward(const at::Tensor& input) { return layer_norm(input, weight, bias, eps_); }

std::pair<at::Tensor, at::Tensor> LayerNormImpl::add_and_norm(const at::Tensor& input,
                                                              const at::Tensor& residual) {
  return add_layer_norm(input, residual, weight, bias, eps_);
}

RMSNormImpl::RMSNormImpl(int64_t size, double eps)
    : weight(register_parameter("weight", at::ones({size}))), eps_(eps) {}

at::Tensor RMSNormImpl::forward(const at::Tensor& input) { return rms_norm(input, weight, eps_); }

std::pair<at::Tensor, at::Tensor> RMSNormImpl::add_and_norm(const at::Tensor& input,
                                                            const at::Tensor& residual) {
  return add_rms_norm(input, residual, weight, eps_);
}

EmbeddingImpl::EmbeddingImpl(int64_t num_embeddings, int64_t dim, std::optional<int64_t> padding_index)
    : padding_index_(padding_index) {
  at::Tensor rows = at::randn({num_embeddings, dim});
  if (padding_index) rows.select(0, *padding_index).zero_();
  weight = register_parameter("weight", rows);
}

at::Tensor EmbeddingImpl::forward(const at::Tensor& indices) {
  return embedding(weight, indices, padding_index_);
}

LinearCrossEntropyImpl::LinearCrossEntropyImpl(int64_t features, int64_t classes, bool has_bias,
                                               const LinearCrossEntropyOptions& options)
    : options_(options) {
  const double bound = 1 / std::sqrt(static_cast<double>(features));
  weight = register_parameter("weight", at::empty({classes, features}).uniform_(-bound, bound));
  if (has_bias) bias = register_parameter("bias", at::empty({classes}).uniform_(-bound, bound));
}

at::Tensor LinearCrossEntropyImpl::forward(const at::Tensor& hidden, const at::Tensor& targets) {
  return linear_cross_entropy(hidden, weight, targets, bias, options_);
}

RotaryEmbeddingImpl::RotaryEmbeddingImpl(int64_t positions, int64_t rotary, double base, RotaryPairs pairs)
    : positions_(positions),
      rotary_(rotary),
      base_(base),
      tables_(rotary_tables(positions, rotary, base)),
      pairs_(pairs) {}

void RotaryEmbeddingImpl::follow(const at::Tensor& input) {
  const at::ScalarType dtype = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (tables_.cos.scalar_type() == dtype && tables_.cos.device() == input.device()) return;
  tables_ = rotary_tables(positions_, rotary_, base_, input.device(), 0, dtype);
}

at::Tensor RotaryEmbeddingImpl::forward(const at::Tensor& input, int64_t first_position) {
  require_defined("rotary_embedding", {{"input", input}});
  const int64_t positions = input.dim() == 4 ? input.size(2) : 0, rows = tables_.cos.size(0);
  if (first_position < 0 || first_position + positions > rows) {
    raise<UsageError>("positions ", first_position, " to ", first_position + positions,
                      " leave the tables, which have ", rows, "; make the module with more positions");
  }
  follow(input);
  return ops::rotary_embedding(input, tables_.cos.narrow(0, first_position, positions),
                               tables_.sin.narrow(0, first_position, positions), pairs_);
}

}  // namespace deepspeed::ops
