#include "deepspeed/autograd/saved_tensors.h"

#include <thread>
#include <vector>

#include <ATen/ops/exp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

namespace deepspeed::autograd {
namespace {

/// Counts what it takes and what it gives back, and keeps it as it is.
class Counting : public SavedTensorHooks {
 public:
  class Counted : public KeptTensor {
   public:
    Counted(const at::Tensor& tensor, int& count) : KeptTensor(tensor), unpacked_(count) {}
    at::Tensor unpack() override {
      ++unpacked_;
      return KeptTensor::unpack();
    }

   private:
    int& unpacked_;
  };
  std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) override {
    ++packed;
    return std::make_unique<Counted>(tensor, unpacked);
  }
  int packed = 0;
  int unpacked = 0;
};

struct SaveOne : torch::autograd::Function<SaveOne> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({x});
    return x * 2;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] * 2 * context->get_saved_variables()[0].sign().abs()};
  }
};

TEST(SavedTensors, GoThroughTheHooksOfTheirScope) {
  Counting hooks;
  const auto x = at::randn({4}).requires_grad_();
  at::Tensor y;
  {
    const SavedTensorScope scope(hooks);
    y = SaveOne::apply(x).exp();
  }
  const auto z = y.exp();  // outside
  EXPECT_EQ(hooks.packed, 2);
  EXPECT_EQ(hooks.unpacked, 0);
  torch::autograd::backward({z.sum()}, {});
  EXPECT_EQ(hooks.unpacked, 2);
  const auto expected = z.detach() * y.detach() * 2;
  EXPECT_TRUE(x.grad().equal(expected));
}

/// Counts as well, and leaves leaves with a gradient to autograd.
class CountingResults : public Counting {
 public:
  bool takes_leaf(const at::TensorImpl* leaf) override {
    asked.push_back(leaf);
    return false;
  }
  std::vector<const at::TensorImpl*> asked;
};

/// Saves three tensors, and notes in backward which ones come back.
struct SaveThree : torch::autograd::Function<SaveThree> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& frozen) {
    context->save_for_backward({x, weight, frozen});
    return x * weight * frozen;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = context->get_saved_variables();
    came_back.clear();
    for (const at::Tensor& tensor : saved) came_back.push_back(tensor.unsafeGetTensorImpl());
    return {gradients[0] * saved[1] * saved[2], gradients[0] * saved[0] * saved[2], at::Tensor()};
  }
  static inline std::vector<const at::TensorImpl*> came_back;
};

TEST(SavedTensors, ReturnTheSameLeavesIfTheHooksDoNotTakeThem) {
  CountingResults hooks;
  const auto weight = at::randn({4}).requires_grad_(), frozen = at::randn({4});
  const auto x = at::randn({4}).requires_grad_() * 1;
  at::Tensor y;
  {
    const SavedTensorScope scope(hooks);
    y = SaveThree::apply(x, weight, frozen);
  }
  EXPECT_EQ(hooks.packed, 2);
  EXPECT_EQ(hooks.asked, std::vector<const at::TensorImpl*>{weight.unsafeGetTensorImpl()});
  torch::autograd::backward({y.sum()}, {});
  ASSERT_EQ(SaveThree::came_back.size(), 3U);
  EXPECT_NE(SaveThree::came_back[0], x.unsafeGetTensorImpl());
  EXPECT_EQ(SaveThree::came_back[1], weight.unsafeGetTensorImpl());
  EXPECT_EQ(SaveThree::came_back[2], frozen.unsafeGetTensorImpl());
  EXPECT_TRUE(weight.grad().equal(x * frozen));
}

TEST(SavedTensors, GoOnlyToTheInnermostScope) {
  Counting outer, inner;
  const auto x = at::randn({4}).requires_grad_();
  const SavedTensorScope outer_scope(outer);
  auto y = x.exp();
  {
    const SavedTensorScope inner_scope(inner);
    y = y.exp();
    const NoSavedTensorHooks none;
    EXPECT_EQ(current_saved_tensor_hooks(), nullptr);
    y = y.exp();
  }
  y = y.exp();
  EXPECT_EQ(outer.packed, 2);
  EXPECT_EQ(inner.packed, 1);
}

TEST(SavedTensors, AreNotSeenByOtherThreads) {
  Counting hooks;
  const SavedTensorScope scope(hooks);
  std::thread([] { at::randn({4}).requires_grad_().exp(); }).join();
  EXPECT_EQ(hooks.packed, 0);
}

TEST(SavedTensors, AreFreedWithTheGraph) {
  Counting hooks;
  const SavedTensorScope scope(hooks);
  auto y = at::randn({4}).requires_grad_().exp();  // saves its own result
  const auto storage = y.storage().getWeakStorageImpl();
  y = at::Tensor();
  EXPECT_EQ(hooks.packed, 1);
  EXPECT_EQ(storage.use_count(), 0U);
}

TEST(SavedTensors, RefuseWritesInPlace) {
  Counting hooks;
  const SavedTensorScope scope(hooks);
  const auto y = at::randn({4}).requires_grad_().exp();
  const auto z = y * 1;
  y.mul_(2);
  EXPECT_ERROR(UsageError, torch::autograd::backward({z.sum()}, {}), "sizes [4]", "written in place",
               "clone()");
}

TEST(SavedTensors, LetCallbacksOfABackwardRunAsBefore) {
  Counting hooks;
  const SavedTensorScope scope(hooks);
  bool called = false;
  const auto y = at::ones({1}).requires_grad_().exp();
  y.register_hook([&](const at::Tensor& gradient) {
    torch::autograd::Engine::get_default_engine().queue_callback([&] { called = true; });
    return gradient;
  });
  torch::autograd::backward({y}, {});
  EXPECT_TRUE(called);
}

}  // namespace
}  // namespace deepspeed::autograd
