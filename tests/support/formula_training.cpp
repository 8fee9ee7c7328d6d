#include "tests/support/formula_training.h"

#include <string>

#include <ATen/ops/empty.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "tests/support/test_device.h"

namespace deepspeed::testing {

namespace {

constexpr uint64_t kWeightStream = 1;
constexpr uint64_t kTokenStream = 2;

bool is_layer_norm_weight(const std::string& name) {
  const bool in_layer_norm = name.rfind("ln_", 0) == 0 || name.find(".ln_") != std::string::npos;
  const std::string suffix = ".weight";
  return in_layer_norm && name.size() > suffix.size() &&
         name.compare(name.size() - suffix.size(), suffix.size(), suffix) == 0;
}

void write_sequence(int64_t* row, int64_t length, int64_t sample, int64_t vocabulary) {
  for (int64_t t = 0; t < length; ++t) {
    const uint64_t h = hash3(kTokenStream, sample, t);
    const bool is_noise = t == 0 || (h >> 61) == 0;
    row[t] = is_noise ? static_cast<int64_t>(h % vocabulary) : (5 * row[t - 1] + 7) % vocabulary;
  }
}

}  // namespace

uint64_t splitmix64(uint64_t x) {
  uint64_t z = x + 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

uint64_t hash3(uint64_t stream, uint64_t k, uint64_t i) {
  return splitmix64(splitmix64(splitmix64(stream) + k) + i);
}

double uniform(uint64_t h) { return static_cast<double>(h >> 11) * 0x1p-52 - 1.0; }

void fill_parameters(torch::nn::Module& module, double scale) {
  torch::NoGradGuard no_grad;
  uint64_t k = 0;
  for (const auto& item : module.named_parameters()) {
    const double offset = is_layer_norm_weight(item.key()) ? 1.0 : 0.0;
    at::Tensor values = at::empty(item.value().sizes(), at::kFloat);
    float* data = values.data_ptr<float>();
    for (int64_t i = 0; i < values.numel(); ++i) {
      data[i] = static_cast<float>(offset + scale * uniform(hash3(kWeightStream, k, i)));
    }
    item.value().copy_(values);
    ++k;
  }
}

FormulaBatch FormulaData::batch(int64_t micro_step, int64_t rank) const {
  const int64_t first_sample = (micro_step * world_size + rank) * micro_batch;
  at::Tensor rows = at::empty({micro_batch, context + 1}, at::kLong);
  for (int64_t b = 0; b < micro_batch; ++b) {
    write_sequence(rows.data_ptr<int64_t>() + b * (context + 1), context + 1, first_sample + b, vocabulary);
  }
  rows = rows.to(test_device());
  return {rows.slice(1, 0, context).contiguous(), rows.slice(1, 1, context + 1).contiguous()};
}

}  // namespace deepspeed::testing
