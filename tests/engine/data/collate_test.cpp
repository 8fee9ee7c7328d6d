#include "deepspeed/engine/data/collate.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace deepspeed::testing {
namespace {

using ::testing::HasSubstr;

at::Tensor of(double value) { return at::full({2}, value); }

struct Masked {
  at::Tensor data, target, mask;
};

TEST(Collate, StacksEveryMemberBesideDataAndTarget) {
  const Masked batch = stack_examples<Masked>({{of(1), of(2), of(3)}, {of(4), of(5), of(6)}});
  EXPECT_TRUE(at::equal(batch.data.select(1, 0), at::full({2}, 1.0).add(at::arange(2) * 3)));
  EXPECT_TRUE(at::equal(batch.mask.select(1, 0), at::full({2}, 3.0).add(at::arange(2) * 3)));
}

struct Labelled {
  at::Tensor image;
  int64_t label = 0;
};

TEST(Collate, RefusesToDropANumberThatDiffers) {
  EXPECT_EQ(stack_examples<Labelled>({{of(1), 7}, {of(2), 7}}).label, 7);
  const auto error = error_of<UsageError>([] {
    stack_examples<Labelled>({{of(1), 7}, {of(2), 7}, {of(3), 8}});
  });
  EXPECT_THAT(error, HasSubstr("examples 0 and 2"));
  EXPECT_THAT(error, HasSubstr("make the number a tensor, or pass a collate function"));
}

struct Either {
  std::optional<at::Tensor> left, right;
};
using Named = std::map<std::string, at::Tensor>;
using Lists = std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>;

TEST(Collate, RefusesToStackWhatIsNotTheSameMember) {
  EXPECT_EQ(stack_examples<Either>({{of(1), {}}, {of(2), {}}}).left->size(0), 2);
  EXPECT_ERROR(UsageError, stack_examples<Either>({{of(1), {}}, {{}, of(2)}}),
               "[engine.collate] examples 0 and 1", "pass a collate function");
  EXPECT_ERROR(UsageError, stack_examples<Named>({{{"a", of(1)}}, {{"b", of(2)}}}),
               "[engine.collate] examples 0 and 1", "pass a collate function");
  EXPECT_ERROR(UsageError, stack_examples<Lists>({{{of(1), of(1)}, {of(1)}}, {{of(1)}, {of(1), of(1)}}}),
               "[engine.collate] examples 0 and 1", "pass a collate function");
}

}  // namespace
}  // namespace deepspeed::testing
