// Names the nodes of autograd whose gradients of the input and of the weight are separate work.
#pragma once

#include <string>
#include <unordered_set>

namespace deepspeed::autograd {

/// Lists the nodes that may run twice, each time for other gradients: products of matrices and convolutions,
/// as torch names them. A test fails when torch renames one.
const std::unordered_set<std::string>& splitting_nodes();

}  // namespace deepspeed::autograd
