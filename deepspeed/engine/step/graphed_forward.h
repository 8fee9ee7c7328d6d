// A model's forward and backward as CUDA graphs, which the section cuda_graphs asks for: the host gives the
// device two graphs in place of their kernels.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/config/config.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/engine/step/graphed_call.h"

namespace deepspeed {

class ForwardGraphs;

class GraphedForward {
 public:
  /// The graphs are of a model on a CUDA device, which must outlive them.
  GraphedForward(const EngineModel& model, const config::CudaGraphsConfig& options);
  ~GraphedForward();
  GraphedForward(const GraphedForward&) = delete;
  GraphedForward& operator=(const GraphedForward&) = delete;

  /// Returns what `forward` returns for the call, as tensors of their own. The first calls of each shape (the
  /// tensors' sizes, dtypes and requires_grad, and the rest) run `forward`; then it is captured, and replayed
  /// from there on. Weights and buffers that have moved in between are captured again. One backward may
  /// follow each call, before the next call of its shape. Throws UsageError, naming the key cuda_graphs, for
  /// tensors on another device and for a forward or a backward that cannot be captured; nothing is captured
  /// then.
  ForwardResult run(const ForwardCall& call, const RunForward& forward);

 private:
  struct Shape {
    int64_t num_runs = 0;
    std::shared_ptr<ForwardGraphs> graphs;  // null: not captured yet
  };

  std::vector<const void*> places() const;

  const EngineModel& model_;
  config::CudaGraphsConfig options_;
  std::map<std::string, Shape> shapes_;
  std::vector<const void*> captured_places_;  // of weights and buffers
  bool has_warned_ = false;
};

}  // namespace deepspeed
