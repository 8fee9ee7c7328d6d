#include <ATen/ops/embedding.h>
#include <torch/csrc/autograd/custom_function.h>

#include "deepspeed/kernels/ops/embedding_gradient.h"
#include "deepspeed/ops/autograd/function.h"
#include "deepspeed/ops/functional.h"
#include "deepspeed/tensor/saved_value.h"

namespace deepspeed::ops {
namespace {

struct EmbeddingCall {
  int64_t num_embeddings, padding_index;
};

struct Embedding : torch::autograd::Function<Embedding> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight, const at::Tensor& indices,
                            int64_t padding_index) {
    context->save_for_backward({indices});
    save_value(context, EmbeddingCall{weight.size(0), padding_index});
    return at::embedding(weight, indices, padding_index);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_create_graph("embedding");
    const auto call = saved_value<EmbeddingCall>(context);
    const at::Tensor indices = context->get_saved_variables()[0];
    const at::Tensor grad =
        kernels::embedding_gradient(gradients[0], indices, call.num_embeddings, call.padding_index);
    return {grad, {}, {}};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& indices,
                     std::optional<int64_t> padding_index) {
  require_defined("embedding", {{"weight", weight}, {"indices", indices}});
  if (weight.dim() != 2) {
    raise<UsageError>("weight has shape ", weight.sizes(), ", expected [num_embeddings, dim]");
  }
  const int64_t row = padding_index.value_or(-1);
  if (padding_index && (row < 0 || row >= weight.size(0))) {
    raise<UsageError>("padding_index is ", row, ", expected a row below ", weight.size(0));
  }
  return Embedding::apply(weight, indices, row);
}

}  // namespace deepspeed::ops
