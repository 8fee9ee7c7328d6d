#include <set>
#include <string>
#include <vector>

#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <gtest/gtest.h>

#include "deepspeed/autograd/split_backward.h"

namespace deepspeed::autograd {
namespace {

at::Tensor leaf(at::IntArrayRef sizes) { return at::ones(sizes).requires_grad_(); }

TEST(SplittingNodes, AreThoseThatTorchMakes) {
  const std::vector<at::Tensor> results{
      at::mm(leaf({2, 2}), leaf({2, 2})),
      at::addmm(leaf({2}), leaf({2, 2}), leaf({2, 2})),
      at::bmm(leaf({1, 2, 2}), leaf({1, 2, 2})),
      at::baddbmm(leaf({1, 2, 2}), leaf({1, 2, 2}), leaf({1, 2, 2})),
      at::conv2d(leaf({1, 1, 2, 2}), leaf({1, 1, 2, 2})),
  };
  std::set<std::string> made;
  for (const auto& result : results) made.insert(result.grad_fn()->name());
  EXPECT_EQ(made, std::set<std::string>(splitting_nodes().begin(), splitting_nodes().end()));
}

}  // namespace
}  // namespace deepspeed::autograd
