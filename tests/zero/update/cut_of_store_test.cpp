#include "deepspeed/zero/update/cut_of_store.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/flip.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/types.h>

#include <gtest/gtest.h>

#include "tests/support/run_ranks.h"

namespace deepspeed::zero {
namespace {

// 30 elements on 3 ranks: [0, 10), [10, 20), [20, 30).
ParamStore make_store(int world_size) {
  std::vector<NamedTensor> params;
  for (const int64_t rows : {3, 1, 8, 1}) {
    params.push_back({"p" + std::to_string(params.size()), at::zeros({rows, rows == 8 ? 2 : 4})});
  }
  params.push_back({"empty", at::zeros({0})});
  params[0].tensor = at::zeros({6});
  return ParamStore({params}, world_size, {});
}

std::vector<int64_t> indices(const optim::CutParameters& cut) {
  std::vector<int64_t> result;
  for (const auto& param : cut.all()) result.push_back(param.param_index);
  return result;
}

TEST(CutParameters, AreThoseOnSeveralRanks) {
  testing::run_ranks(3, [](comm::World& world) {
    const ParamStore store = make_store(3);
    const auto cut = make_cut_parameters(store, 0, world.group());
    EXPECT_EQ(indices(*cut), (std::vector<int64_t>{2}));  // p0: [0, 6), p1: [6, 10), p2: [10, 26)
    EXPECT_EQ(cut->all()[0].shape, (std::vector<int64_t>{8, 2}));
  });
  testing::run_ranks(1, [](comm::World& world) {
    const ParamStore store = make_store(1);
    EXPECT_TRUE(make_cut_parameters(store, 0, world.group())->all().empty());
  });
}

TEST(CutParameters, AddUpAndTakeTheLargest) {
  testing::run_ranks(3, [](comm::World& world) {
    const ParamStore store = make_store(3);
    const auto cut = make_cut_parameters(store, 0, world.group());
    const at::Tensor sums = at::full({2}, world.rank() + 1.0, at::kDouble), largest = sums.clone();
    cut->sum(sums);
    cut->max(largest);
    EXPECT_TRUE(sums.equal(at::full({2}, 6.0, at::kDouble)));
    EXPECT_TRUE(largest.equal(at::full({2}, 3.0, at::kDouble)));
  });
}

TEST(CutParameters, AreMadeWholeOnTheRanksThatHaveAPart) {
  testing::run_ranks(3, [](comm::World& world) {
    const ParamStore store = make_store(3);
    const auto cut = make_cut_parameters(store, 0, world.group());
    EXPECT_EQ(cut->device(), at::Device(at::kCPU));
    const at::Tensor whole = at::arange(16, at::kFloat);
    at::Tensor part;
    if (world.rank() == 1) part = whole.narrow(0, 0, 10);
    if (world.rank() == 2) part = whole.narrow(0, 10, 6);
    int num_calls = 0;
    const auto results = cut->change_whole({{0, part}}, [&](size_t index, const at::Tensor& all) {
      ++num_calls;
      EXPECT_EQ(index, 0U);
      EXPECT_TRUE(all.equal(whole));
      return all.flip(0);
    });
    EXPECT_EQ(num_calls, world.rank() == 0 ? 0 : 1);
    ASSERT_EQ(results.size(), 1U);
    if (world.rank() == 0) {
      EXPECT_FALSE(results[0].defined());
    } else {
      EXPECT_TRUE(results[0].equal(whole.flip(0).narrow(0, world.rank() == 1 ? 0 : 10, part.numel())));
    }
    const at::Tensor sums = at::full({2}, 1.0 + world.rank(), at::kDouble);
    cut->sum(sums);
    EXPECT_TRUE(sums.equal(at::full({2}, 6.0, at::kDouble)));
  });
}

}  // namespace
}  // namespace deepspeed::zero
