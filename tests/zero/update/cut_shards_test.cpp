#include "deepspeed/zero/update/cut_shards.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include <gtest/gtest.h>

#include "tests/support/run_ranks.h"
#include "tests/zero/params/sharded_model.h"

namespace deepspeed::zero {
namespace {

/// Makes parameters of 1 to 5 rows of 3.
ShardStore make_rows(const comm::ProcessGroup& group) {
  std::vector<NamedTensor> params;
  for (const int64_t rows : {1, 2, 3, 4, 5})
    params.push_back({"p" + std::to_string(rows), at::zeros({rows, 3}).requires_grad_(true)});
  params.push_back({"empty", at::zeros({0}).requires_grad_(true)});
  return ShardStore({params}, {}, ZeroGroups(group), testing::nothing_persistent());
}

class CutShards : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, CutShards, ::testing::Values(1, 2, 3, 4));

TEST_P(CutShards, AreMadeWholeOnOneRankEach) {
  testing::run_ranks(GetParam(), [](comm::World& world) {
    const ShardStore store = make_rows(world.group());
    const ShardLayout& layout = *store.shards(0);
    // All but the first parameter.
    const auto cut = make_cut_shards(store, 0, {layout.place(1).begin, layout.flat_numel()}, world.group());
    ASSERT_EQ(cut->all().size(), 4U);
    EXPECT_EQ(cut->all()[3].param_index, 4);
    EXPECT_EQ(cut->all()[3].shape, (std::vector<int64_t>{5, 3}));
    std::vector<optim::CutParameters::Part> parts;
    const auto values_of = [](size_t index) { return at::arange(3 * int64_t(index + 2), at::kFloat) + 0.5; };
    for (size_t index = 0; index < 4; ++index) {
      const Interval own = layout.elements(index + 1, world.rank());
      parts.push_back(
          {index, own.empty() ? at::Tensor() : values_of(index).narrow(0, own.begin, own.numel())});
    }
    int64_t num_calls = 0;
    const auto results = cut->change_whole(parts, [&](size_t index, const at::Tensor& whole) {
      ++num_calls;
      EXPECT_TRUE(whole.equal(values_of(index))) << index;
      return whole.cumsum(0);
    });
    for (size_t index = 0; index < 4; ++index) {
      const Interval own = layout.elements(index + 1, world.rank());
      ASSERT_EQ(results[index].defined(), !own.empty());
      if (own.empty()) continue;
      EXPECT_TRUE(results[index].equal(values_of(index).cumsum(0).narrow(0, own.begin, own.numel())))
          << index;
    }
    const at::Tensor all_calls = at::full({1}, num_calls, at::kLong);
    cut->sum(all_calls);
    EXPECT_EQ(all_calls.item<int64_t>(), 4) << "each parameter is changed once, on one rank";
  });
}

}  // namespace
}  // namespace deepspeed::zero
