// The arguments and results of a PipelineEngine's calls.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/error.h"
#include "deepspeed/pipe/module/layer.h"

namespace deepspeed {

/// A call that a pipeline does not have.
class DEEPSPEED_API PipelineError : public UsageError {
 public:
  using UsageError::UsageError;
};

/// Holds the arguments of PipelineEngine::eval_batch().
struct EvalBatchOptions {
  bool return_logits = false;
  bool compute_loss = true;  // false: the last layer's outputs take the place of losses
  /// "avg": over the micro batches and the data-parallel ranks; nothing: one result each micro batch.
  std::optional<std::string> reduce_output = "avg";
  bool bcast_loss = true;                     // to all stages; else the last stage alone has the loss
  std::optional<int> num_micro_batches = {};  // default: gradient_accumulation_steps
};

struct EvalBatchResult {
  at::Tensor loss;                     // scalar; undefined on other stages without bcast_loss
  std::vector<at::Tensor> losses;      // without reduce_output, of the last stage: one each micro batch
  std::vector<pipe::Tensors> outputs;  // of the last stage, where asked for: of each micro batch
};

}  // namespace deepspeed
