// A loading copies weights from files into named tensors, once everything about them fits.
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

/// Names a tensor of the model with its names there; one that is shared has several, any of which the files
/// may have.
struct WeightTarget {
  std::vector<std::string> names;
  at::Tensor tensor;
  /// Takes the values, of the tensor's sizes, where they do not simply go into `tensor`.
  std::function<void(const at::Tensor& values)> set = nullptr;
};

class WeightLoading {
 public:
  /// Compares names, shapes and dtypes and verifies the files; nothing is changed. Throws one CheckpointError
  /// that lists all that does not fit.
  WeightLoading(std::shared_ptr<const WeightSource> source, std::vector<WeightTarget> targets,
                const LoadWeightsOptions& options);

  /// Copies, one weight after the other, into the targets' dtypes and devices.
  void run() const;
  const LoadedWeights& result() const { return result_; }

 private:
  struct Copy {
    size_t weight;  // in the source
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
