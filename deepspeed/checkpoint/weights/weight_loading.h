// Copies weights from files into named tensors, after checking that everything fits.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/checkpoint/weights/load_weights_options.h"
#include "deepspeed/checkpoint/weights/weight_source.h"

namespace deepspeed::checkpoint {

/// Holds a tensor of the model with its names. A shared tensor has several names; the files may use any of
/// them.
struct WeightTarget {
  std::vector<std::string> names;
  at::Tensor tensor;
  /// Receives the values, in the tensor's shape. If null, the values are copied into `tensor`.
  std::function<void(const at::Tensor& values)> set = nullptr;
};

class WeightLoading {
 public:
  /// Compares names, shapes and dtypes and verifies the files, without changing anything. Throws one
  /// CheckpointError that lists all problems.
  WeightLoading(std::shared_ptr<const WeightSource> source, std::vector<WeightTarget> targets,
                const LoadWeightsOptions& options);

  /// Copies the weights one by one, converting them to the targets' dtypes and devices.
  void run() const;
  const LoadedWeights& result() const { return result_; }

 private:
  struct Copy {
    size_t weight;  // index in the source
    size_t target;
    bool transposed;
  };

  void match(const LoadWeightsOptions& options);
  void take(const Copy& copy, const std::string& name);
  void check_copy(const Copy& copy, const std::string& name);
  bool same_data(const Copy& one, const Copy& other) const;
  void check_names(const LoadWeightsOptions& options);
  std::string problems_text() const;
  at::Tensor load(const Copy& copy) const;

  std::shared_ptr<const WeightSource> source_;
  std::vector<WeightTarget> targets_;
  std::vector<Copy> copies_;
  std::unordered_map<size_t, size_t> copy_of_target_;
  LoadedWeights result_;
  std::vector<std::string> problems_;
  bool names_differ_ = false;
};

}  // namespace deepspeed::checkpoint
