// What programs write around a region: options, arguments that torch has classes for, exceptions.
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <torch/data/example.h>

#include <gtest/gtest.h>

#include "deepspeed/activation/checkpointing.h"
#include "deepspeed/base/error.h"

#include "tests/activation/plain_and_checkpointed.h"
#include "tests/support/error_of.h"

namespace deepspeed::testing {
namespace {

using checkpointing::checkpoint;
using checkpointing::RegionOptions;
using checkpointing::SelectivePolicy;

TEST(CheckpointCalls, NameTheRegionWhoseRecomputationThrows) {
  struct OwnError : std::exception {
    const char* what() const noexcept override { return "one of the program's"; }
  };
  const auto x = at::randn({4}).requires_grad_();
  for (const bool use_reentrant : {false, true}) {
    const RegionOptions named{.use_reentrant = use_reentrant, .name = "layer 3"};
    const auto backward_of = [&](auto thrown) {
      const auto calls = std::make_shared<int>(0);
      const TensorFunction function = [=](Tensors v) -> Tensors {
        if ((*calls)++ > 0) thrown();
        return {v[0].exp()};
      };
      torch::autograd::backward({checkpointed(function, named)({x})[0].sum()}, {});
    };
    constexpr const char* kPlace = "this was in the recomputation of layer 3";
    EXPECT_ERROR(UsageError, backward_of([] { raise<UsageError>("wrong"); }), "wrong", kPlace);
    EXPECT_ERROR(c10::Error, backward_of([] { at::ones({2}).view({3}); }), "invalid for input", kPlace);
    const std::string text =
        error_of<Error>([&] { backward_of([] { throw std::runtime_error("no more"); }); });
    EXPECT_EQ(text, message("no more; ", kPlace));
    try {
      backward_of([] { throw OwnError(); });
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), message("one of the program's; ", kPlace));
      EXPECT_THROW(std::rethrow_if_nested(error), OwnError);
    }
    const RegionOptions by_front_end{.use_reentrant = use_reentrant, .names_errors = false};
    const auto y = checkpointed(
        [calls = std::make_shared<int>(0)](Tensors v) -> Tensors {
          if ((*calls)++ > 0) throw OwnError();
          return {v[0].exp()};
        },
        by_front_end)({x})[0];
    EXPECT_THROW(torch::autograd::backward({y.sum()}, {}), OwnError);
  }
}

TEST(CheckpointCalls, FindTheTensorsOfTorchsExamples) {
  const auto x = at::randn({4}).requires_grad_();
  const torch::data::Example<> example(x * 2, at::ones({4}));
  const auto y = checkpoint(
      RegionOptions{.use_reentrant = true},
      [](torch::data::Example<> given) { return torch::data::Example<>(given.data.exp(), given.target); },
      example);
  torch::autograd::backward({(y.data * y.target).sum()}, {});
  EXPECT_TRUE(x.grad().allclose(2 * (2 * x.detach()).exp()));
}

TEST(CheckpointCalls, TakeOptionsInBraces) {
  const auto x = at::randn({4, 4}).requires_grad_();
  const auto weight = at::randn({4, 4});
  int calls = 0;
  const auto y = checkpoint(
      {.keep = SelectivePolicy::matmuls_and_attention(), .name = "layer 3"},
      [&](at::Tensor h) {
        ++calls;
        return h.mm(weight).exp();
      },
      x);
  torch::autograd::backward({y.sum()}, {});
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(x.grad().defined());
}

}  // namespace
}  // namespace deepspeed::testing
