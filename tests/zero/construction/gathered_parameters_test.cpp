#include "deepspeed/zero/gathered_parameters.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

#include <ATen/ATen.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/zero/param_access.h"

#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"
#include "tests/support/formula_training.h"
#include "tests/support/run_ranks.h"
#include "tests/support/small_net.h"
#include "tests/zero/params/sharded_model.h"

namespace deepspeed::zero {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::Mlp;
using testing::named_parameters;
using testing::shard;

std::vector<at::Tensor> copies_of(const torch::nn::Module& model) {
  std::vector<at::Tensor> copies;
  for (const auto& param : model.parameters()) copies.push_back(param.detach().clone());
  return copies;
}

void expect_values(const torch::nn::Module& model, const std::vector<at::Tensor>& expected) {
  const auto params = model.parameters();
  const GatheredParameters gathered(params);
  for (size_t i = 0; i < params.size(); ++i) EXPECT_TRUE(at::equal(params[i].detach(), expected[i])) << i;
}

TEST(GatheredParameters, AreWholeAndEqualOnEveryRank) {
  for (const int ranks : {1, 2, 3, 4}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      Mlp model(7, 2);
      testing::fill_parameters(model, 0.3 + world.rank());  // rank 0's values are used
      Mlp first(7, 2);
      testing::fill_parameters(first, 0.3);
      const ShardStore store = shard(model, world.group());
      expect_values(model, copies_of(first));
      EXPECT_EQ(store.pool()->live_numel(), 0);
      const GatheredParameters gathered(model.parameters());
      EXPECT_EQ(model.linear(1)->bias.const_data_ptr<float>()[6], first.linear(1)->bias[6].item<float>());
    });
  }
}

TEST(GatheredParameters, GiveAllRanksWhatTheModifierRankWrote) {
  for (const int ranks : {1, 2, 3}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      Mlp model(7, 2);
      testing::fill_parameters(model, 0.3);
      auto expected = copies_of(model);
      const int modifier = world.size() - 1;
      expected[0].add_(2 * modifier + 1);
      expected[3].fill_(4 + modifier);
      const ShardStore store = shard(model, world.group());
      const auto params = model.parameters();
      {
        const GatheredParameters gathered({params[0], params[3], params[0]}, modifier);
        const c10::NoGradGuard no_grad;
        params[0].detach().add_(2 * world.rank() + 1);
        model.parameters()[3].fill_(4 + world.rank());
      }
      expect_values(model, expected);
      Mlp plain(7, 2);
      const c10::NoGradGuard no_grad;
      for (size_t i = 0; i < expected.size(); ++i) plain.parameters()[i].copy_(expected[i]);
      const at::Tensor input = at::arange(14, at::kFloat).view({2, 7});
      const ParameterAccess access(params);
      EXPECT_TRUE(at::equal(model.forward(input), plain.forward(input)));
    });
  }
}

TEST(GatheredParameters, RefuseToLoseWhatAnotherRankThanTheModifierWrote) {
  testing::run_ranks(3, [](comm::World& world) {
    Mlp model(7, 2);
    testing::fill_parameters(model, 0.3);
    const auto expected = copies_of(model);
    const ShardStore store = shard(model, world.group());
    const auto params = model.parameters();
    const auto write_on = [&](int writer, int modifier, const std::function<void(const at::Tensor&)>& write) {
      GatheredParameters gathered(params, modifier);
      if (world.rank() == writer) write(params[2]);
      return error_of<UsageError>([&] { gathered.close(); });
    };
    const auto by_operator = [](const at::Tensor& param) { param.detach().mul_(2); };
    const auto by_pointer = [](const at::Tensor& param) { param.data_ptr<float>()[3] = 7; };
    for (const auto& write : {std::function<void(const at::Tensor&)>(by_operator), {by_pointer}}) {
      const std::string error = write_on(/*writer=*/1, /*modifier=*/0, write);
      EXPECT_THAT(error, AllOf(HasSubstr("'norm0.weight' was written on rank 1"),
                               HasSubstr("not on the modifier_rank, 0"), HasSubstr("modifier_rank = 1")));
      expect_values(model, expected);  // on all ranks, as the modifier_rank left them
    }
    EXPECT_EQ(write_on(/*writer=*/2, /*modifier=*/2, by_operator), "no error");
    const GatheredParameters gathered(params);
    EXPECT_TRUE(at::equal(params[2].detach(), expected[2] * 2));
  });
}

TEST(GatheredParameters, ShowWhatIsWrittenWithoutAModifierRankAndDropItAtTheEnd) {
  for (const int ranks : {1, 2}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      for (const int64_t persistent : {0, 1000}) {
        std::string said;
        const auto before =
            log::set_sink([&](log::Level, const std::string& line) { said += "(" + line + ")"; });
        Mlp model(7, 2);
        testing::fill_parameters(model, 0.3);
        const auto expected = copies_of(model);
        auto options = testing::nothing_persistent();
        options.pool.keys.stage3_param_persistence_threshold = persistent;
        const ShardStore store = shard(model, world.group(), options);
        const auto params = model.parameters();
        const c10::NoGradGuard no_grad;
        const at::Tensor written = world.rank() == 0 ? expected[0] * 2 : expected[0];
        for (int round = 0; round < 2; ++round) {
          const GatheredParameters gathered(params);
          if (world.rank() == 0) params[0].detach().mul_(2);  // ranks may write different values
          params[3].set_data(at::full_like(expected[3], 5));
          { const GatheredParameters inner({params[0], params[3]}); }
          EXPECT_TRUE(at::equal(params[0], written));
          EXPECT_TRUE(at::equal(params[3], at::full_like(expected[3], 5)));
          const ParameterAccess access(params);
          EXPECT_TRUE(at::equal(params[0] + 0, written));
          EXPECT_TRUE(at::equal(params[1], expected[1]));
        }
        expect_values(model, expected);
        {
          const ParameterAccess access(params);
          for (size_t i = 0; i < params.size(); ++i) EXPECT_TRUE(at::equal(params[i], expected[i])) << i;
        }
        log::set_sink(before);
        EXPECT_THAT(said, AllOf(HasSubstr("parameter 'norm0.bias' was written inside a GatheredParameters"),
                                HasSubstr("give it a modifier_rank")));
        EXPECT_EQ(std::count(said.begin(), said.end(), '('), 1) << said;
      }
    });
  }
}

TEST(GatheredParameters, RefuseWritesWithoutAModifierRankDuringAPass) {
  testing::run_ranks(2, [](comm::World& world) {
    Mlp model(7, 1);
    const ShardStore store = shard(model, world.group());
    const GatheredParameters gathered(model.parameters());
    const ParameterAccess access(model.parameters());
    const c10::NoGradGuard no_grad;
    EXPECT_THAT(error_of<UsageError>([&] { model.linear(0)->weight.zero_(); }),
                AllOf(HasSubstr("'linear0.weight'"), HasSubstr("modifier_rank")));
  });
}

TEST(GatheredParameters, KeepWhatAModifierRankWritesInsideOneWithout) {
  for (const int ranks : {1, 2}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      Mlp model(7, 1);
      const ShardStore store = shard(model, world.group());
      const at::Tensor weight = model.parameters()[0], bias = model.parameters()[1];
      const c10::NoGradGuard no_grad;
      {
        const GatheredParameters outer({weight, bias});
        weight.fill_(1.0);
        {
          const GatheredParameters inner({weight}, 0);
          weight.add_(1.0);
        }
        EXPECT_TRUE(at::equal(weight, at::full_like(weight, 2.0)));
        EXPECT_ERROR(
            std::runtime_error,
            [&] {
              const GatheredParameters inner({weight}, 0);
              weight.add_(1.0);
              throw std::runtime_error("spoilt");
            }(),
            "spoilt");
        EXPECT_TRUE(at::equal(weight, at::full_like(weight, 2.0)));
        weight.fill_(7.0);
      }
      const GatheredParameters again({weight});
      EXPECT_TRUE(at::equal(weight, at::full_like(weight, 2.0)));
    });
  }
}

TEST(GatheredParameters, MayReadInsideOneThatWrites) {
  for (const int ranks : {1, 2}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      Mlp model(7, 1);
      const ShardStore store = shard(model, world.group());
      const at::Tensor weight = model.parameters()[0];
      const c10::NoGradGuard no_grad;
      {
        const GatheredParameters outer({weight}, 0);
        weight.fill_(3.0);
        {
          const GatheredParameters inner({weight});
          EXPECT_TRUE(at::equal(weight, at::full_like(weight, 3.0)));
          EXPECT_ERROR(UsageError, GatheredParameters({weight}, 0), "with a modifier_rank already");
        }
        weight.add_(1.0);
      }
      const GatheredParameters again({weight});
      EXPECT_TRUE(at::equal(weight, at::full_like(weight, 4.0)));
    });
  }
}

TEST(GatheredParameters, Nest) {
  testing::run_ranks(2, [](comm::World& world) {
    Mlp model(7, 1);
    const ShardStore store = shard(model, world.group());
    const auto params = model.parameters();
    const GatheredParameters outer(params);
    { const GatheredParameters inner(params); }
    EXPECT_NE(params[0].const_data_ptr(), nullptr);  // still whole
    EXPECT_ERROR(UsageError, GatheredParameters(params, 2), "modifier_rank 2, expected 0 to 1");
  });
}

TEST(GatheredParameters, SeeWhatIsWrittenInsideThem) {
  for (const int ranks : {1, 2}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      Mlp model(7, 1);
      const ShardStore store = shard(model, world.group());
      const at::Tensor weight = model.parameters()[0];
      const c10::NoGradGuard no_grad;
      const auto write = [&](double value, bool fails) {
        const GatheredParameters inner({weight}, 0);
        if (world.rank() == 0 || fails) weight.fill_(value);
        EXPECT_ERROR(UsageError, GatheredParameters({weight}, 0), "cannot have a modifier_rank");
        if (fails) throw std::runtime_error("spoilt");
      };
      {
        const GatheredParameters outer({weight});
        write(3.0, false);
        EXPECT_TRUE(at::equal(weight, at::full_like(weight, 3.0)));
        EXPECT_ERROR(std::runtime_error, write(5.0, true), "spoilt");
        EXPECT_TRUE(at::equal(weight, at::full_like(weight, 3.0)));
      }
      const GatheredParameters again({weight});
      EXPECT_TRUE(at::equal(weight, at::full_like(weight, 3.0)));
    });
  }
}

TEST(GatheredParameters, LeaveTheirValuesToTensorsThatWereMadeOverThem) {
  for (const int ranks : {1, 2}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      Mlp model(7, 2);
      testing::fill_parameters(model, 0.3);
      const auto expected = copies_of(model);
      const ShardStore store = shard(model, world.group());
      const auto params = model.parameters();
      at::Tensor kept, turned;
      {
        const GatheredParameters gathered(params);
        kept = params[0].detach().cpu();
        turned = params[0].detach().t();
      }
      EXPECT_EQ(store.pool()->live_numel(), 0);
      const auto expect_kept = [&] {
        EXPECT_TRUE(at::equal(kept, expected[0]));
        EXPECT_TRUE(at::equal(turned.to(at::kDouble), expected[0].t().to(at::kDouble)));
        EXPECT_EQ(kept.const_data_ptr<float>()[5], expected[0].view({-1})[5].item<float>());
      };
      expect_kept();
      {
        const GatheredParameters gathered(params, 0);
        const c10::NoGradGuard no_grad;
        params[0].add_(1);
      }
      expect_kept();
      EXPECT_THAT(error_of<UsageError>([&] { params[0].detach().sum(); }), HasSubstr("is partitioned"));
      kept.zero_();  // the parameter does not share its memory
      const GatheredParameters gathered(params);
      EXPECT_TRUE(at::equal(params[0].detach(), expected[0] + 1));
    });
  }
}

TEST(GatheredParameters, LeaveTensorsOverThemFromBeforeAsTheyAre) {
  testing::run_ranks(2, [](comm::World& world) {
    Mlp model(7, 2);
    testing::fill_parameters(model, 0.3);
    const auto expected = copies_of(model);
    const ShardStore store = shard(model, world.group());
    const auto params = model.parameters();
    const at::Tensor before = params[0].detach();
    {
      const GatheredParameters gathered(params);
      const at::Tensor within = params[0].detach();
      EXPECT_TRUE(at::equal(before, expected[0]));
    }
    EXPECT_THAT(error_of<UsageError>([&] { before.sum(); }), HasSubstr("is partitioned"));
    const ParameterAccess access(params);
    EXPECT_TRUE(at::equal(before, expected[0]));
  });
}

TEST(GatheredParameters, ForgetWritesIfAnExceptionEndsThem) {
  for (const int ranks : {1, 2}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      Mlp model(7, 1);
      const auto expected = copies_of(model);
      auto options = testing::nothing_persistent();
      options.pool.keys.stage3_param_persistence_threshold = 7;
      const ShardStore store = shard(model, world.group(), options);
      const auto spoil = [&] {
        const GatheredParameters gathered(model.parameters(), 0);
        const c10::NoGradGuard no_grad;
        for (auto& param : model.parameters()) param.zero_();
        model.parameters()[1].set_data(at::zeros_like(expected[1]));
        throw std::runtime_error("spoilt");
      };
      EXPECT_ERROR(std::runtime_error, spoil(), "spoilt");
      std::vector<at::Tensor> values;
      for (const auto& param : model.parameters()) {
        const GatheredParameters gathered({param});
        values.push_back(param.detach().clone());
      }
      for (const size_t index : {0, 1}) {
        world.group().broadcast(expected[index], 0);
        EXPECT_TRUE(at::equal(values[index], expected[index])) << index;
      }
      EXPECT_GT(values[2].abs().sum().item<float>(), 0.0F);  // persistent ones too
    });
  }
}

TEST(GatheredParameters, LeaveOrdinaryTensorsAlone) {
  at::Tensor plain = at::ones({3});
  {
    const GatheredParameters gathered({plain, at::Tensor()}, 5);
    plain.add_(1);
  }
  EXPECT_EQ(plain.sum().item<float>(), 6.0F);
}

/// Waits until the live bytes are at most `bound`, for up to five seconds. The transport's threads release
/// sent data when they get to run.
int64_t settled_bytes(const testing::AllocationCounter& counter, int64_t bound) {
  for (int wait = 0; wait < 500 && counter.live_bytes() > bound; ++wait)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return counter.live_bytes();
}

TEST(ShardStore, HoldsThePaddedShareOfEachRankAndNothingElse) {
  for (const int ranks : {1, 2, 3, 4}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      const testing::AllocationCounter counter;
      Mlp model(63, 3);
      int64_t expected = 0;
      for (const auto& param : model.parameters())
        expected += (param.numel() + world.size() - 1) / world.size() * 4;
      const ShardStore store = shard(model, world.group());
      EXPECT_EQ(store.bytes(), expected);
      world.group().barrier();  // the transport releases what it sent before
      // The transport may hold the last tensor a moment longer.
      const int64_t last = 63 * 4;
      EXPECT_LE(settled_bytes(counter, expected + last), expected + last);
      {
        const GatheredParameters gathered(model.parameters());
        EXPECT_GE(counter.live_bytes(), world.size() == 1 ? expected : expected * (world.size() + 1));
      }
      const int64_t bound = expected + (world.size() + 1) * last;
      EXPECT_LE(settled_bytes(counter, bound), bound);
    });
  }
}

TEST(ShardStore, CastsFrozenAndTiedParametersTrueToTheModel) {
  testing::run_ranks(2, [](comm::World& world) {
    testing::SmallNet model(13, 6);
    const auto expected = copies_of(model);
    ShardStore::Options options = testing::nothing_persistent();
    options.dtype = at::kBFloat16;
    const ShardStore store = shard(model, world.group(), options);
    const auto params = model.parameters();
    ASSERT_EQ(params.size(), expected.size());
    const GatheredParameters gathered(params);
    const auto first = expected[1].to(at::kBFloat16);
    world.group().broadcast(first, 0);
    EXPECT_TRUE(at::equal(params[1].detach(), first));
    int num_frozen = 0;
    for (const auto& param : params) num_frozen += param.requires_grad() ? 0 : 1;
    EXPECT_EQ(num_frozen, 2);
  });
}

TEST(ShardStore, RefusesParametersThatItWouldUntie) {
  testing::run_ranks(1, [](comm::World& world) {
    const at::Tensor memory = at::ones({10});
    const std::vector<NamedTensor> overlapping = {{"a", memory.narrow(0, 0, 6)},
                                                  {"b", memory.narrow(0, 5, 4)}};
    EXPECT_THAT(error_of<UsageError>([&] { ShardStore({overlapping}, {}, ZeroGroups(world.group()), {}); }),
                AllOf(HasSubstr("'a'"), HasSubstr("'b'"), HasSubstr("share memory")));
    const std::vector<NamedTensor> apart = {{"a", memory.narrow(0, 0, 5)}, {"b", memory.narrow(0, 5, 4)}};
    const ShardStore store({apart}, {}, ZeroGroups(world.group()), {});
    EXPECT_THAT(error_of<UsageError>([&] { ShardStore({}, apart, ZeroGroups(world.group()), {}); }),
                HasSubstr("partitioned already"));
    EXPECT_ERROR(UsageError,
                 ShardStore({{{"c", at::ones({2}, at::kLong)}}}, {}, ZeroGroups(world.group()), {}),
                 "parameter 'c' is CPULongType", "expected a dense float tensor");
    EXPECT_ERROR(UsageError, ShardStore({{{"c", memory}, {"c", memory}}}, {}, ZeroGroups(world.group()), {}),
                 "parameter 'c' is in the parameter groups twice");
    EXPECT_ERROR(UsageError, ShardStore({{}}, {}, ZeroGroups(world.group()), {}),
                 "a parameter group is empty");
  });
}

}  // namespace
}  // namespace deepspeed::zero
