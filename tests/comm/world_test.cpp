// Tests worlds without other processes, and the argument checks of handles.
#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <CLI/CLI.hpp>
#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/comm/coalesced.h"
#include "deepspeed/comm/fake.h"
#include "deepspeed/engine/assembly/initialize_options.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

int num_open_files() {
  int count = 0;
  auto* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

TEST(World, OpensNothingForOneRankAndIsReturnedByASecondCall) {
  EXPECT_FALSE(is_initialized());
  EXPECT_ERROR(UsageError, world(), "call init_distributed() first");
  const int before = num_open_files();
  const auto alone = init_distributed({.verbose = false});
  EXPECT_EQ(num_open_files(), before);
  EXPECT_EQ(alone.size(), 1);
  EXPECT_TRUE(alone.group().c10d_group());
  EXPECT_EQ(alone.group().backend(), "gloo");
  EXPECT_EQ(&init_distributed().group(), &world().group());
  auto tensor = at::arange(3);
  alone.group().all_reduce(tensor);
  EXPECT_TRUE(at::equal(tensor, at::arange(3)));
  EXPECT_ERROR(UsageError, alone.group().send(tensor, 0), "a rank cannot send to itself");
  destroy_process_group();
  EXPECT_FALSE(is_initialized());
}

TEST(World, RefusesABackendItDoesNotHave) {
  EXPECT_THAT([] { init_distributed({.dist_backend = "mpi"}); },
              ThrowsMessage<NotSupportedError>(HasSubstr("'mpi'")));
}

TEST(World, RefusesAnAcceleratorItDoesNotHave) {
  const auto before = env::get("DS_ACCELERATOR");
  env::set("DS_ACCELERATOR", "tpu");
  EXPECT_THAT([] { init_distributed(); }, ThrowsMessage<UsageError>(HasSubstr("DS_ACCELERATOR is 'tpu'")));
  env::set("DS_ACCELERATOR", "cuda");
  env::set("CUDA_VISIBLE_DEVICES", "");
  EXPECT_THAT([] { init_distributed(); },
              ThrowsMessage<NotSupportedError>(HasSubstr("DS_ACCELERATOR is 'cuda', but ")));
  env::set("DS_ACCELERATOR", before);
}

TEST(World, RefusesWhatComesAfterShutdown) {
  auto fake = make_fake_world(2);
  fake.shutdown();
  EXPECT_ERROR(UsageError, fake.group().barrier(), "the world was left");
  EXPECT_ERROR(UsageError, fake.new_group({0}, "late"), "'late' was requested from a world that was left");
  EXPECT_ERROR(UsageError, World().rank(), "the world is empty; call init_distributed() first");
}

TEST(FakeWorld, BehavesAsIfAllRanksHeldTheSame) {
  const auto group = make_fake_world(4, 1).group();
  EXPECT_EQ(group.backend(), "fake");
  EXPECT_FALSE(group.c10d_group());
  auto sum = at::arange(3);
  group.all_reduce(sum);
  EXPECT_TRUE(at::equal(sum, at::arange(3) * 4));
  auto gathered = at::zeros({8});
  group.all_gather(gathered, at::arange(2, at::kFloat));
  EXPECT_TRUE(at::equal(gathered, at::arange(2, at::kFloat).repeat({4})));
  auto scattered = at::zeros({2});
  group.reduce_scatter(scattered, at::arange(8, at::kFloat));
  EXPECT_TRUE(at::equal(scattered, at::tensor({8.0f, 12.0f})));
  auto exchanged = at::zeros({4});
  group.all_to_all(exchanged, at::arange(4, at::kFloat));
  EXPECT_TRUE(at::equal(exchanged, at::ones({4})));
  EXPECT_EQ(group.all_reduce_scalar(3), 12);
  EXPECT_EQ(group.all_reduce_scalar(3, ReduceOp::kMax), 3);
  EXPECT_ERROR(UsageError, make_fake_world(2, 2), "rank 2 of a world of 2");
}

TEST(ProcessGroup, RefusesTensorsThatDoNotFit) {
  const auto group = make_fake_world(2).group();
  const auto throws = [](const char* part) { return ThrowsMessage<UsageError>(HasSubstr(part)); };
  EXPECT_THAT([&] { group.all_reduce(at::Tensor()); },
              throws("all_reduce of group 'world': the tensor is an undefined"));
  EXPECT_THAT([&] { group.all_reduce(at::zeros({2, 3}).t()); }, throws("not contiguous"));
  EXPECT_THAT([&] { group.all_reduce(at::zeros({2}, at::kBool)); }, throws("bool"));
  EXPECT_THAT([&] { group.all_gather(at::zeros({5}), at::zeros({2})); },
              throws("output has 5 elements, expected 2 times the 2"));
  EXPECT_THAT([&] { group.all_gather(at::zeros({4}), at::zeros({2}, at::kInt)); },
              throws("output is Float on cpu, but input is Int"));
  EXPECT_THAT([&] { group.reduce_scatter(at::zeros({2}), at::zeros({5})); }, throws("input has 5 elements"));
  EXPECT_THAT([&] { group.all_to_all(at::zeros({3}), at::zeros({3})); }, throws("divisible by 2"));
  EXPECT_THAT([&] { group.broadcast(at::zeros({3}), 2); }, throws("the root is 2, expected 0 to 1"));
}

std::vector<at::Tensor> mixed_tensors(int rank) {
  return {at::arange(5, at::kFloat).add(rank),
          at::arange(6, at::kLong).view({2, 3}).add(rank),
          at::arange(6, at::kFloat).view({2, 3}).t().add(10 * rank),
          at::zeros({0}),
          at::full({100}, rank, at::kFloat),
          at::full({3}, rank, at::kBFloat16)};
}

TEST(Coalesced, ReducesListsInPiecesOfAnySize) {
  testing::run_ranks(2, [](World& world) {
    for (const int64_t piece_bytes : {1L, 30L, 64L, 1L << 20}) {
      auto reduced = mixed_tensors(world.rank());
      start_all_reduce_coalesced(world.group(), reduced, ReduceOp::kSum, piece_bytes).wait();
      const auto zero = mixed_tensors(0);
      const auto one = mixed_tensors(1);
      for (size_t i = 0; i < reduced.size(); ++i) {
        EXPECT_TRUE(at::equal(reduced[i], zero[i] + one[i])) << i << " in pieces of " << piece_bytes;
      }
    }
    EXPECT_ERROR(UsageError, start_all_reduce_coalesced(world.group(), {}, ReduceOp::kSum, 0),
                 "a piece of 0 bytes, expected 1 or more");
  });
}

TEST(ConfigArguments, AreReadUnderBothNames) {
  CLI::App app;
  ConfigArguments arguments;
  add_config_arguments(app, arguments);
  app.parse("--deepspeed --deepspeed_config a.json --local_rank 2");
  EXPECT_TRUE(arguments.enabled());
  EXPECT_EQ(arguments.config_path(), "a.json");
  EXPECT_EQ(arguments.local_rank, 2);
  CLI::App old;
  ConfigArguments deprecated;
  add_config_arguments(old, deprecated);
  old.parse("--deepscale --deepscale_config b.json");
  EXPECT_TRUE(deprecated.enabled());
  EXPECT_EQ(deprecated.config_path(), "b.json");
}

}  // namespace
}  // namespace deepspeed::comm
