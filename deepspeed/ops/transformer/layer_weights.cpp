#include "deepspeed/ops/transformer/layer_weights.h"

#include <cmath>

#include <ATen/ops/cat.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"

namespace deepspeed::ops {
namespace {

constexpr size_t kNumInitial = 8;
constexpr size_t kNumJoined = 3;  // queries, keys and values become one weight

int64_t number_of(WeightSize size, int64_t hidden, int64_t inter) {
  switch (size) {
    case WeightSize::kNone:
      return 0;
    case WeightSize::kHidden:
      return hidden;
    case WeightSize::kThreeHidden:
      return 3 * hidden;
    case WeightSize::kIntermediate:
      return inter;
  }
  return 0;
}

const at::Tensor& checked_initial(const at::Tensor& value, const std::vector<int64_t>& sizes,
                                  const char* name) {
  if (!value.defined() || value.sizes() != at::IntArrayRef(sizes)) {
    raise<UsageError>("the initial value of ", name, ": got ",
                      value.defined() ? message("sizes ", value.sizes()) : "no tensor", ", expected sizes ",
                      at::IntArrayRef(sizes));
  }
  return value;
}

}  // namespace

std::vector<int64_t> sizes_of(const TransformerWeight& weight, int64_t hidden_size,
                              int64_t intermediate_size) {
  std::vector<int64_t> sizes = {number_of(weight.rows, hidden_size, intermediate_size)};
  if (weight.is_matrix()) sizes.push_back(number_of(weight.columns, hidden_size, intermediate_size));
  return sizes;
}

TransformerWeights weights_of(at::TensorList list) {
  if (list.size() != kTransformerWeights.size())
    raise<UsageError>("got ", list.size(), " weights, expected ", kTransformerWeights.size());
  TransformerWeights weights;
  for (size_t i = 0; i < list.size(); ++i) weights.*kTransformerWeights[i].member = list[i];
  return weights;
}

std::vector<at::Tensor> list_of(const TransformerWeights& weights) {
  std::vector<at::Tensor> list;
  for (const TransformerWeight& weight : kTransformerWeights) list.push_back(weights.*weight.member);
  return list;
}

void draw_weights(const TransformerWeights& weights, const DeepSpeedTransformerConfig& config) {
  const double range = config.initializer_range;
  if (!(range >= 0)) {
    raise<ConfigError>("initializer_range: got ", range,
                       ", expected the standard deviation of new weights, or initial weights");
  }
  if (config.adjust_init_range && config.num_hidden_layers < 1) {
    raise<ConfigError>("num_hidden_layers: got ", config.num_hidden_layers,
                       ", expected a positive number, or adjust_init_range false");
  }
  const auto layers = static_cast<double>(config.num_hidden_layers);
  const double output_range = config.adjust_init_range ? range / std::sqrt(2.0 * layers) : range;
  const at::NoGradGuard no_grad;
  for (const TransformerWeight& weight : kTransformerWeights) {
    const at::Tensor& tensor = weights.*weight.member;
    if (weight.is_matrix()) {
      tensor.normal_(0, weight.start == WeightStart::kNormalOfOutput ? output_range : range);
    } else {
      tensor.fill_(weight.start == WeightStart::kOnes ? 1 : 0);
    }
  }
}

TransformerWeights joined_weights(const DeepSpeedTransformerConfig& config,
                                  const std::vector<at::Tensor>& weights,
                                  const std::vector<at::Tensor>& biases) {
  if (weights.size() != kNumInitial || biases.size() != kNumInitial) {
    raise<UsageError>(
        "got ", weights.size(), " initial weights and ", biases.size(), " biases, expected ", kNumInitial,
        " each: of queries, keys, values, attention output, its norm, intermediate, output, norm");
  }
  const at::NoGradGuard no_grad;
  TransformerWeights joined;
  size_t next = 0;  // index of an initial weight
  for (size_t i = 0; i < kTransformerWeights.size(); i += 2) {
    const TransformerWeight &weight = kTransformerWeights[i], &bias = kTransformerWeights[i + 1];
    std::vector<int64_t> sizes = sizes_of(weight, config.hidden_size, config.intermediate_size);
    const size_t parts = i == 0 ? kNumJoined : 1;
    sizes[0] /= static_cast<int64_t>(parts);
    std::vector<at::Tensor> rows, offsets;
    for (const size_t end = next + parts; next < end; ++next) {
      rows.push_back(checked_initial(weights[next], sizes, weight.name));
      offsets.push_back(biases[next].defined() ? checked_initial(biases[next], {sizes[0]}, bias.name)
                                               : weights[next].new_zeros({sizes[0]}));
    }
    joined.*weight.member = at::cat(rows);
    joined.*bias.member = at::cat(offsets);
  }
  return joined;
}

}  // namespace deepspeed::ops
