#include "deepspeed/kernels/ops/masked_softmax.h"

#include <limits>

#include "deepspeed/base/error.h"

#include "tests/kernels/op_case.h"
#include "tests/support/error_of.h"

namespace deepspeed::kernels {
namespace {

TEST(MaskedSoftmax, AgreesWithAReferenceForEveryDtypeSizeAndInstructionSet) {
  at::manual_seed(1);
  for_each_target([](const std::string& target) {
    for (const auto dtype : kOpDtypes) {
      for (const int64_t keys : kOddSizes) {
        const at::Tensor scores = at::randn({2, 3, 5, keys}).mul(6).to(dtype);
        const auto mask_dtype = keys % 2 == 0 || dtype == at::kDouble ? dtype : at::kFloat;
        const at::Tensor mask = at::randn({2, 1, 1, keys}).to(mask_dtype);
        const at::Tensor y = masked_softmax(scores, mask, 0.3);
        const at::Tensor expected = (wide(scores) * 0.3 + wide(mask)).softmax(-1);
        expect_near_reference(y, expected, 32, target);
        const at::Tensor grad = at::randn_like(scores), stored = wide(y);
        const at::Tensor dot = (wide(grad) * stored).sum(-1, true);
        expect_near_reference(masked_softmax_backward(grad, y, 0.3), 0.3 * stored * (wide(grad) - dot), 32,
                              target + " backward");
      }
    }
  });
}

TEST(MaskedSoftmax, BroadcastsMasksOfEveryShape) {
  const at::Tensor scores = at::randn({2, 3, 4, 9});
  for (const at::IntArrayRef sizes : std::initializer_list<at::IntArrayRef>{{9},
                                                                            {4, 9},
                                                                            {1, 9},
                                                                            {3, 1, 9},
                                                                            {3, 4, 9},
                                                                            {2, 1, 1, 9},
                                                                            {2, 3, 4, 9},
                                                                            {1, 3, 1, 9},
                                                                            {2, 1, 4, 9}}) {
    const at::Tensor mask = at::randn(sizes);
    const at::Tensor expected = (scores + mask).softmax(-1);
    EXPECT_TRUE(at::allclose(masked_softmax(scores, mask, 1), expected, 1e-5, 1e-6)) << sizes;
    if (sizes.size() > 1) {
      EXPECT_TRUE(at::allclose(masked_softmax(scores, strided(mask), 1), expected, 1e-5, 1e-6)) << sizes;
    }
    EXPECT_TRUE(at::allclose(masked_softmax(scores, unaligned(mask), 1), expected, 1e-5, 1e-6)) << sizes;
  }
  const at::Tensor flat = at::randn({9});
  EXPECT_TRUE(at::allclose(masked_softmax(flat, at::zeros({9}), 2), (flat * 2).softmax(-1), 1e-5, 1e-6));
}

TEST(MaskedSoftmax, WorksInPlaceAndOnAnyThreadsAndAddress) {
  const at::Tensor scores = at::randn({37, 5, 65}), grad = at::randn({37, 5, 65});
  const at::Tensor y = masked_softmax(scores, {}, 0.5);
  expect_equal_for_threads([&] { return masked_softmax(scores, {}, 0.5); });
  EXPECT_TRUE(at::equal(masked_softmax(unaligned(scores), {}, 0.5), y));
  EXPECT_TRUE(at::equal(masked_softmax(strided(scores), {}, 0.5), y));
  const at::Tensor in_place = scores.clone();
  masked_softmax_(in_place, {}, 0.5);
  EXPECT_TRUE(at::equal(in_place, y));
  const at::Tensor backward = masked_softmax_backward(grad, y, 0.5), grad_in_place = grad.clone();
  masked_softmax_backward_(grad_in_place, y, 0.5);
  EXPECT_TRUE(at::equal(grad_in_place, backward));
}

TEST(MaskedSoftmax, TakesMaskedRowsNansAndInfinitiesAsTorchDoes) {
  const float infinity = std::numeric_limits<float>::infinity();
  at::Tensor scores = at::randn({6, 35});
  scores[1][4] = std::numeric_limits<float>::quiet_NaN();
  scores[2][34] = infinity;
  scores[3][0] = -infinity;
  at::Tensor mask = at::zeros({6, 35});
  mask[4].fill_(-infinity);
  mask[5].slice(0, 3).fill_(-infinity);
  const at::Tensor own = masked_softmax(scores, mask, 1), torch = (scores + mask).softmax(-1);
  EXPECT_TRUE(at::allclose(own, torch, 1e-5, 1e-7, true));
  EXPECT_TRUE(own[4].isnan().all().item<bool>());
  EXPECT_EQ(own[5].slice(0, 3).abs().max().item<float>(), 0.0F);
}

TEST(MaskedSoftmax, NamesTheArgumentThatDoesNotFit) {
  const at::Tensor scores = at::zeros({2, 4, 8});
  EXPECT_ERROR(UsageError, masked_softmax(scores, at::zeros({8}, at::kBool), 1), "mask has dtype Bool",
               "-inf");
  EXPECT_ERROR(UsageError, masked_softmax(scores, at::zeros({3, 4, 8}), 1), "mask has shape [3, 4, 8]",
               "broadcasts to scores, [2, 4, 8]");
  EXPECT_ERROR(UsageError, masked_softmax(scores, at::zeros({4, 1}), 1), "with all 8 keys");
  EXPECT_ERROR(UsageError, masked_softmax(scores, at::zeros({8}, at::kDouble), 1), "mask has dtype Double");
  EXPECT_ERROR(UsageError, masked_softmax(at::zeros({1, 1, 1, 1, 1, 1, 2}), {}, 1),
               "scores have 7 dimensions");
  EXPECT_ERROR(UsageError, masked_softmax_(at::zeros({4, 8}).t(), {}, 1),
               "scores of shape [8, 4] is not contiguous");
  EXPECT_ERROR(UsageError, masked_softmax_backward(at::zeros({2}), scores, 1), "grad_output has shape [2]");
}

}  // namespace
}  // namespace deepspeed::kernels
