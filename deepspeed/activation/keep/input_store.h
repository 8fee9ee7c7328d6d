// How the inputs of a region wait for its backward: whole, as this rank's part, in a buffer, on the host.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "deepspeed/activation/keep/configuration.h"
#include "deepspeed/autograd/saved_tensors.h"

namespace deepspeed::activation {

/// Takes the inputs of one region, in the order of its list. What is an activation (floating, with at least
/// an element a model-parallel rank) is kept as the configuration says, all else as it is. Parts of ranks
/// whose inputs differ in a bit are a CommError, when they are to be gathered, that names the region.
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
