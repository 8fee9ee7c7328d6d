#include "deepspeed/comm/functions.h"

#include <limits>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"
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
    const auto from_each = at::zeros({3}, at::kLong);
    all_to_all_single(from_each, at::arange(3) + 10 * rank);
    EXPECT_TRUE(at::equal(from_each, 10 * at::arange(3) + rank));
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
    EXPECT_THAT([&] { get_global_rank(group, 2); },
                ThrowsMessage<UsageError>(HasSubstr("rank 2 of a group of 2")));
    EXPECT_EQ(get_world_group().size(), 3);
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

// Compares with `value` converted to the tensor's dtype.
void expect_all(const at::Tensor& tensor, double value) {
  EXPECT_TRUE(at::equal(tensor, at::full_like(tensor, value))) << tensor << " expected " << value;
}

TEST(Functions, ReduceByEveryOperation) {
  run_ranks(3, [](World&) {
    const int rank = get_rank();
    const std::vector<std::pair<ReduceOp, double>> expected{
        {ReduceOp::kSum, 12}, {ReduceOp::kMax, 6},  {ReduceOp::kMin, 2}, {ReduceOp::kProduct, 48},
        {ReduceOp::kAvg, 4},  {ReduceOp::kBand, 0}, {ReduceOp::kBor, 6}, {ReduceOp::kBxor, 0}};
    for (const auto type :
         {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kShort, at::kLong}) {
      for (const auto& [op, value] : expected) {
        const bool is_bitwise = op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor;
        const auto own = at::full({7}, 2.0 * (rank + 1), type);  // 2, 4, 6
        if (at::isFloatingType(type) ? is_bitwise : op == ReduceOp::kAvg) {
          const auto refused = [&own, op = op] { all_reduce(own, op); };
          EXPECT_THAT(refused, ThrowsMessage<UsageError>(HasSubstr("expected")));
          continue;
        }
        auto tensor = own.clone();
        all_reduce(tensor, op);
        expect_all(tensor, value);
        tensor = own.clone();
        reduce(tensor, 1, op);
        if (rank == 1) expect_all(tensor, value);
        tensor = at::zeros({7}, type);
        reduce_scatter_tensor(tensor, own.repeat({3}), op);
        expect_all(tensor, value);
      }
    }
    // The average fits even if the sum does not.
    const auto large = at::full({5}, 60000.0, at::kHalf);
    all_reduce(large, ReduceOp::kAvg);
    expect_all(large, 60000.0);
    const auto block = at::zeros({5}, at::kHalf);
    auto work = reduce_scatter_tensor(block, at::full({15}, 60000.0, at::kHalf), ReduceOp::kAvg, {}, true);
    work.wait();
    expect_all(block, 60000.0);
  });
}

TEST(Functions, SendAndReceiveWithoutWaiting) {
  run_ranks(2, [](World&) {
    const int peer = 1 - get_rank();
    const auto first = at::full({3}, get_rank() + 1.0);
    const auto second = at::full({2}, get_rank() + 10.0);
    const auto received_first = at::zeros({3});
    const auto received_second = at::zeros({2});
    // Both ranks receive before they send, in a different order; tags match the messages.
    std::vector<Work> works{irecv(received_second, peer, {}, 9), irecv(received_first, peer, {}, 4),
                            isend(first, peer, {}, 4), isend(second, peer, {}, 9)};
    for (auto& work : works) work.wait();
    expect_all(received_first, peer + 1.0);
    expect_all(received_second, peer + 10.0);
    EXPECT_THAT([&] { isend(first, peer, {}, -1); }, ThrowsMessage<UsageError>(HasSubstr("the tag is -1")));
    EXPECT_THAT([&] { irecv(first, 7); }, ThrowsMessage<UsageError>(HasSubstr("irecv: src is rank 7")));
  });
}

TEST(Functions, TakeListsTogether) {
  run_ranks(2, [](World&) {
    for (const bool async_op : {false, true}) {
      const double value = get_rank() + 1.0;
      const auto wide = at::full({3, 4}, value);
      const std::vector<at::Tensor> list{wide.t(), at::full({5}, value, at::kHalf), at::zeros({0}),
                                         at::full({2}, value)};
      auto work = all_reduce_coalesced(list, ReduceOp::kSum, {}, async_op);
      work.wait();
      for (const auto& tensor : list) expect_all(tensor, 3.0);
      work = all_reduce_coalesced(list, ReduceOp::kAvg, {}, async_op);
      work.wait();
      expect_all(wide, 3.0);
      const std::vector<at::Tensor> outputs{at::zeros({2, 3}), at::zeros({4}, at::kLong)};
      work = all_gather_coalesced(outputs, {at::full({3}, value), at::full({2}, get_rank(), at::kLong)}, {},
                                  async_op);
      work.wait();
      expect_all(outputs[0][0], 1.0);
      expect_all(outputs[0][1], 2.0);
      EXPECT_TRUE(at::equal(outputs[1], at::tensor({0, 0, 1, 1}, at::kLong)));
      EXPECT_ERROR(UsageError, all_gather_coalesced(outputs, {wide}), "all_gather_coalesced",
                   "2 outputs for 1 inputs");
    }
  });
}

TEST(Functions, ReturnFromListsAtOnce) {
  run_ranks(2, [](World&) {
    const int rank = get_rank();
    const auto own = at::full({2}, rank + 1.0);
    const std::vector<at::Tensor> gathered{at::zeros({2}), at::zeros({2})};
    const auto scattered = at::zeros({2});
    const auto reduced = at::zeros({2});
    const std::vector<at::Tensor> exchanged{at::zeros({2}), at::zeros({2})};
    const auto rows = at::zeros({rank == 0 ? 3 : 1});
    std::vector<Work> works;
    works.push_back(all_gather(gathered, own, {}, true));
    works.push_back(gather(own, rank == 0 ? exchanged : std::vector<at::Tensor>(), 0, {}, true));
    works.push_back(scatter(
        scattered, rank == 1 ? std::vector<at::Tensor>{own * 10, own * 20} : std::vector<at::Tensor>(), 1, {},
        true));
    works.push_back(reduce_scatter(reduced, {own, own * 3}, ReduceOp::kSum, {}, true));
    works.push_back(barrier({}, true));
    for (auto& work : works) work.wait();
    expect_all(gathered[1], 2.0);
    if (rank == 0) expect_all(exchanged[1], 2.0);
    expect_all(scattered, rank == 0 ? 20.0 : 40.0);
    expect_all(reduced, rank == 0 ? 3.0 : 9.0);
    auto work = all_to_all(exchanged, {own, own * 5}, {}, true);
    work.wait();
    expect_all(exchanged[1], rank == 0 ? 2.0 : 10.0);
    // Rank 0 sends one row to itself and one to rank 1; rank 1 sends two to rank 0.
    const auto sent = at::full({2}, rank + 7.0);
    work = all_to_all_single(rows, sent, rank == 0 ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1, 0},
                             rank == 0 ? std::vector<int64_t>{1, 1} : std::vector<int64_t>{2, 0}, {}, true);
    work.wait();
    EXPECT_TRUE(at::equal(rows, rank == 0 ? at::tensor({7.0F, 8.0F, 8.0F}) : at::tensor({7.0F})));
    expect_all(own, rank + 1.0);
  });
}

TEST(Functions, NameRanksAndScalars) {
  run_ranks(3, [](World&) {
    EXPECT_TRUE(is_available());
    EXPECT_TRUE(has_all_gather_into_tensor() && has_reduce_scatter_tensor());
    EXPECT_EQ(get_all_ranks_from_group(), (std::vector<int>{0, 1, 2}));
    const auto group = new_group({2, 0});
    if (group) {
      EXPECT_EQ(get_all_ranks_from_group(group), (std::vector<int>{2, 0}));
    }
    EXPECT_EQ(all_reduce_scalar(get_rank() + 0.5, ReduceOp::kMax), 2.5);
    EXPECT_EQ(all_reduce_scalar(get_rank(), ReduceOp::kAvg), 1.0);
    EXPECT_EQ(all_gather_scalar(get_rank() * 2.0), (std::vector<double>{0, 2, 4}));
    const auto zero_dim = at::scalar_tensor(get_rank() + 1.0);
    all_reduce(zero_dim);
    expect_all(zero_dim, 6.0);
    const auto sums = at::zeros({1});
    reduce_scatter_fn(sums, at::ones({3}));
    const auto all = at::zeros({3});
    allgather_fn(all, sums);
    expect_all(all, 3.0);
    auto mesh = initialize_mesh_device({1, 3}, {"data_parallel", "sequence_parallel"});
    EXPECT_EQ(mesh.group("sequence_parallel").size(), 3);
    EXPECT_EQ(mesh.group("data_parallel").size(), 1);
    EXPECT_ERROR(UsageError, initialize_mesh_device({3}, {"a", "b"}),
                 "mesh_shape has 1 sizes and mesh_dim_names 2 names");
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
