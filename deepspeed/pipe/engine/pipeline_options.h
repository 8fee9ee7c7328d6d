// The arguments and results of a PipelineEngine's calls.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/error.h"
#include "deepspeed/pipe/module/layer.h"

namespace deepspeed {

/// Thrown by calls that a pipeline does not have.
class DEEPSPEED_API PipelineError : public UsageError {
 public:
  using UsageError::UsageError;
};

/// Holds the arguments of PipelineEngine::eval_batch().
struct EvalBatchOptions {
  bool return_logits = false;
  bool compute_loss = true;  // false: the last layer's outputs replace losses
  /// "avg": the mean over micro batches and data-parallel ranks; absent: one result per micro batch.
  std::optional<std::string> reduce_output = "avg";
  bool bcast_loss = true;                     // to all stages; false: only the last stage has the loss
  std::optional<int> num_micro_batches = {};  // default: gradient_accumulation_steps
};

struct EvalBatchResult {
  at::Tensor loss;                     // scalar; undefined on other stages without bcast_loss
  std::vector<at::Tensor> losses;      // without reduce_output, on the last stage: one per micro batch
  std::vector<pipe::Tensors> outputs;  // on the last stage, if requested: of each micro batch
};

}  // namespace deepspeed
