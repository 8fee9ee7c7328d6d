#include "deepspeed/comm/functions.h"

#include <limits>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using ::testing::HasSubstr;
using testing::run_ranks;
using ::testing::ThrowsMessage;

TEST(Functions, ReduceOverTheWorldByDefault) {
  run_ranks(3, [](World& world) {
    const int rank = get_rank();
    EXPECT_EQ(rank, world.rank());
    EXPECT_EQ(get_world_size(), 3);
    EXPECT_EQ(get_local_rank(), rank);
    auto tensor = at::full({4}, rank + 1.0);
    all_reduce(tensor);
    EXPECT_TRUE(at::equal(tensor, at::full({4}, 6.0)));
    auto work = inference_all_reduce(tensor, ReduceOp::kMax, {}, /*async_op=*/true);
    work.wait();
    EXPECT_TRUE(at::equal(tensor, at::full({4}, 6.0)));
    auto reduced = at::full({5}, rank + 1.0);
    reduce(reduced, 2);
    if (rank == 2) {
      EXPECT_TRUE(at::equal(reduced, at::full({5}, 6.0)));
    }
    broadcast(tensor.fill_(rank), 1);
    EXPECT_TRUE(at::equal(tensor, at::full({4}, 1.0)));
    barrier();
    monitored_barrier();
  });
}

TEST(Functions, GatherAndScatterLists) {
  run_ranks(3, [](World&) {
    const int rank = get_rank();
    const auto own = at::full({2, 2}, rank, at::kLong);
    std::vector<at::Tensor> list;
    for (int i = 0; i < 3; ++i) list.push_back(at::zeros({2, 2}, at::kLong));
    all_gather(list, own);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(list[i], at::full({2, 2}, i, at::kLong)));
    std::vector<at::Tensor> gathered;
    if (rank == 1)
      gathered = {at::zeros({2, 2}, at::kLong), at::zeros({2, 2}, at::kLong), at::zeros({2, 2}, at::kLong)};
    gather(own, gathered, 1);
    if (rank == 1) {
      EXPECT_TRUE(at::equal(gathered[2], at::full({2, 2}, 2, at::kLong)));
    }
    const auto mine = at::zeros({2}, at::kInt);
    std::vector<at::Tensor> parts;
    if (rank == 2)
      parts = {at::full({2}, 10, at::kInt), at::full({2}, 11, at::kInt), at::full({2}, 12, at::kInt)};
    scatter(mine, parts, 2);
    EXPECT_TRUE(at::equal(mine, at::full({2}, 10 + rank, at::kInt)));
    const auto sum = at::zeros({2});
    reduce_scatter(sum, {at::full({2}, 1.0), at::full({2}, 2.0), at::full({2}, 3.0)});
    EXPECT_TRUE(at::equal(sum, at::full({2}, 3.0 * (rank + 1))));
    std::vector<at::Tensor> too_few{at::zeros({2})};
    EXPECT_THAT([&] { all_gather(too_few, own); }, ThrowsMessage<UsageError>(HasSubstr("list of 3 tensors")));
  });
}

TEST(Functions, ExchangePiecesOfAnySize) {
  run_ranks(3, [](World&) {
    const int rank = get_rank();
    // Rank r sends r + 1 rows to rank 0, none to rank 1 and two to rank 2.
    const auto input = at::arange((rank + 3) * 2).view({rank + 3, 2}) + 100 * rank;
    const std::vector<int64_t> sends{rank + 1, 0, 2};
    const std::vector<int64_t> receives = rank == 0   ? std::vector<int64_t>{1, 2, 3}
                                          : rank == 1 ? std::vector<int64_t>{0, 0, 0}
                                                      : std::vector<int64_t>{2, 2, 2};
    const int64_t rows = rank == 0 ? 6 : rank == 1 ? 0 : 6;
    const auto output = at::zeros({rows, 2}, at::kLong);
    all_to_all_single(output, input, receives, sends);
    if (rank == 0) {
      EXPECT_TRUE(at::equal(output.select(1, 0), at::tensor({0, 100, 102, 200, 202, 204}, at::kLong)));
    }
    if (rank == 2) {
      EXPECT_TRUE(at::equal(output.select(1, 0), at::tensor({2, 4, 104, 106, 206, 208}, at::kLong)));
    }
    EXPECT_THAT(
        [&] {
          all_to_all_single(output, input, receives, {1, 1, 99});
        },
        ThrowsMessage<UsageError>(HasSubstr("input has")));
    std::vector<at::Tensor> outputs, inputs;
    for (int i = 0; i < 3; ++i) {
      outputs.push_back(at::zeros({4}));
      inputs.push_back(at::full({4}, 10.0 * rank + i));
    }
    all_to_all(outputs, inputs);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(outputs[i], at::full({4}, 10.0 * i + rank)));
  });
}

TEST(Functions, TakeGlobalRanksInGroups) {
  run_ranks(3, [](World&) {
    const auto group = new_group({2, 0});
    if (get_rank() == 1) {
      EXPECT_FALSE(group);
      return;
    }
    EXPECT_EQ(get_world_size(group), 2);
    EXPECT_EQ(get_rank(group), get_rank() == 2 ? 0 : 1);
    EXPECT_EQ(get_global_rank(group, 0), 2);
    const auto tensor = at::full({2}, get_rank() + 0.5);
    broadcast(tensor, 2, group);
    EXPECT_TRUE(at::equal(tensor, at::full({2}, 2.5)));
    EXPECT_THAT([&] { broadcast(tensor, 1, group); }, ThrowsMessage<UsageError>(HasSubstr("src is rank 1")));
    if (get_rank() == 0) send(at::ones({3}), 2, group);
    const auto received = at::zeros({3});
    if (get_rank() == 2) recv(received, 0, group);
    if (get_rank() == 2) {
      EXPECT_TRUE(at::equal(received, at::ones({3})));
    }
  });
}

TEST(Functions, MoveObjects) {
  run_ranks(2, [](World&) {
    const double infinity = std::numeric_limits<double>::infinity();
    const auto all = all_gather_object({{"rank", get_rank()}, {"best", infinity}, {"names", {"a", "ü"}}});
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[1].at("rank"), 1);
    EXPECT_EQ(all[0].at("best").get<double>(), infinity);
    EXPECT_EQ(all[0].at("names"), (Json{"a", "ü"}));
    std::vector<Json> objects{get_rank(), nullptr};
    if (get_rank() == 1) objects = {"text", Json::array({1, 2, 3}), {{"deep", {{"er", true}}}}};
    broadcast_object_list(objects, 1);
    ASSERT_EQ(objects.size(), 3u);
    EXPECT_EQ(objects[2].at("deep").at("er"), true);
  });
}

}  // namespace
}  // namespace deepspeed::comm
