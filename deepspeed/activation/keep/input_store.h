// How the inputs of a region wait for its backward: whole, as this rank's part, in a buffer, on the host.
#pragma once

#include <memory>

#include "deepspeed/activation/keep/configuration.h"
#include "deepspeed/autograd/saved_tensors.h"

namespace deepspeed::activation {

/// Takes the inputs of one region, in the order of its list. What is an activation (floating, with at least
/// an element a model-parallel rank) is kept as the configuration says, all else as it is.
class InputStore : public autograd::SavedTensorHooks {
 public:
  explicit InputStore(std::shared_ptr<const Configuration> configuration)
      : configuration_(std::move(configuration)) {}
  std::unique_ptr<autograd::PackedTensor> pack(const at::Tensor& tensor) override;

 private:
  std::shared_ptr<const Configuration> configuration_;
  size_t place_ = 0;
};

}  // namespace deepspeed::activation
