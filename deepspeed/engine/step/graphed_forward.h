// Runs a model's forward and backward as CUDA graphs, as the section cuda_graphs asks. The host then launches
// two graphs instead of all their kernels.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/config/config.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/engine/step/forward_graphs.h"

namespace deepspeed {

/// Describes what calls have in common that can share CUDA graphs.
struct CallShape {
  struct OfTensor {
    std::optional<at::ScalarType> type = {};  // nothing: an undefined tensor
    bool requires_grad = false;
    std::vector<int64_t> sizes = {};
    auto operator<=>(const OfTensor&) const = default;
  };

  std::string rest;  // ForwardCall::rest
  std::vector<OfTensor> tensors;
  auto operator<=>(const CallShape&) const = default;
};

/// Decides which calls of a model run as graphs.
class GraphedForward {
 public:
  /// Prepares for a model on a CUDA device. The model must outlive this object.
  GraphedForward(const EngineModel& model, const config::CudaGraphsConfig& options);
  GraphedForward(const GraphedForward&) = delete;
  GraphedForward& operator=(const GraphedForward&) = delete;

  /// Returns what `forward` returns for the call, in new tensors. The first calls of each shape run
  /// `forward`; then it is captured, and later calls replay it. A shape is the tensors' sizes, dtypes and
  /// requires_grad, and the other arguments. If weights or buffers have moved the shape is captured again. At
  /// most one backward may follow each call, before the next call of its shape. Throws UsageError, naming the
  /// key cuda_graphs, for tensors on another device, and if the forward or backward cannot be captured.
  /// Nothing is captured then.
  ForwardResult run(const ForwardCall& call, const RunForward& forward);

 private:
  struct Shape {
    int64_t num_runs = 0;
    std::shared_ptr<ForwardGraphs> graphs;  // null: not captured yet
  };

  std::vector<const void*> places() const;

  const EngineModel& model_;
  config::CudaGraphsConfig options_;
  std::map<CallShape, Shape> shapes_;
  std::vector<const void*> captured_places_;  // addresses of weights and buffers
  bool has_warned_ = false;
};

}  // namespace deepspeed
