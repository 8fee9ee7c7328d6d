// Decides how a region's inputs are kept until its backward: whole, as this rank's part, in a buffer, or on
// the host.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "deepspeed/activation/keep/configuration.h"
#include "deepspeed/autograd/saved_tensors.h"

namespace deepspeed::activation {

/// Keeps the inputs of one region until its backward. Activations (floating-point tensors with at least one
/// element per model-parallel rank) are kept as configured, all others as they are. Gathering parts throws a
/// CommError that names the region if the ranks' inputs differ in any bit.
class InputStore : public autograd::SavedTensorHooks {
 public:
  InputStore(std::shared_ptr<const Configuration> configuration, std::string region)
      : configuration_(std::move(configuration)), region_(std::move(region)) {}
  std::unique_ptr<autograd::PackedTensor> pack(const at::Tensor& tensor) override;
  bool takes_leaf(const at::TensorImpl* leaf) override;

 private:
  std::shared_ptr<const Configuration> configuration_;
  std::string region_;
  size_t place_ = 0;
};

}  // namespace deepspeed::activation
