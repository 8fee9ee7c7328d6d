// The recorded trainings of tests/golden/deepspeed_training and the measures by which another training is
// held against them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/json.h"

#include "tests/support/formula_training.h"
#include "tests/support/tiny_gpt.h"

namespace deepspeed::testing {

/// One file <variant>.json with its parameters.
struct GoldenTraining {
  TinyGPTConfig model;
  double weight_scale = 0.0;
  int64_t world_size = 0;
  int64_t num_steps = 0;
  Json ds_config;                           // without zero_optimization
  double first_micro_batch_loss = 0.0;      // of rank 0
  std::vector<std::vector<double>> losses;  // [step][rank], the mean over a step's micro batches
  std::vector<double> learning_rates;       // [step], as the update of that step used it
  Json grad_norms;                          // {"stage0": [step] -> number or null, ...}
  at::Tensor parameters;  // (P) fp32: all final parameters, in the order of named_parameters()

  int64_t micro_batch() const { return ds_config.at("train_micro_batch_size_per_gpu"); }
  int64_t accumulation() const { return ds_config.at("gradient_accumulation_steps"); }
  FormulaData data() const;
  /// The model with its initial weights.
  std::shared_ptr<TinyGPT> make_model() const;
};

/// Returns the ZeRO section of the recordings. At stage 3 every parameter is partitioned.
Json zero_config(int stage);

/// The recorded training `variant` ("adamw_clip", "sgd_clip", "sgd"). Throws IoError.
GoldenTraining load_golden_training(const std::string& variant);

/// (P) fp32: the gradient of rank 0's first micro batch.
at::Tensor load_golden_first_gradient();

/// (P) fp32: all parameters of `module`, in the order of named_parameters().
at::Tensor flat_parameters(const torch::nn::Module& module);

struct Difference {
  double value = 0.0;
  std::string where;
};

/// The largest relative difference of two loss histories.
Difference largest_loss_difference(const std::vector<std::vector<double>>& got,
                                   const std::vector<std::vector<double>>& expected);

/// The largest difference of an element's total update, relative to the largest update of its parameter.
Difference largest_update_difference(const torch::nn::Module& initial, const at::Tensor& got,
                                     const at::Tensor& expected);

}  // namespace deepspeed::testing
