#include "deepspeed/optim/torch/torch_rmsprop.h"

#include <utility>

#include <torch/optim/rmsprop.h>

#include "deepspeed/optim/slices/slice_states.h"
#include "deepspeed/optim/torch/torch_optimizer.h"

namespace deepspeed::optim {

std::unique_ptr<Optimizer> make_torch_rmsprop(std::vector<ParamGroup> groups) {
  set_defaults(groups, {{"lr", 1e-2},
                        {"alpha", 0.99},
                        {"eps", 1e-8},
                        {"weight_decay", 0.0},
                        {"momentum", 0.0},
                        {"centered", false}});
  const std::vector<torch::optim::OptimizerParamGroup> empty(
      groups.size(), torch::optim::OptimizerParamGroup(std::vector<at::Tensor>{}));
  return std::make_unique<TorchOptimizer>(std::move(groups), std::make_shared<torch::optim::RMSprop>(empty));
}

}  // namespace deepspeed::optim
