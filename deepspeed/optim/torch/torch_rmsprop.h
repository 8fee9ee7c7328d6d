// The config makes LibTorch's RMSprop by name.
#pragma once

#include <memory>
#include <vector>

#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed::optim {

/// Makes an RMSprop. It reads of a group lr, alpha, eps, weight_decay, momentum, centered; what a group lacks
/// has torch's default (1e-2, 0.99, 1e-8, 0, 0, false). The state is square_avg and, as the options ask,
/// momentum_buffer and grad_avg, fp32.
std::unique_ptr<Optimizer> make_torch_rmsprop(std::vector<ParamGroup> groups);

}  // namespace deepspeed::optim
