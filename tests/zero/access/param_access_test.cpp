#include "deepspeed/zero/param_access.h"

#include <functional>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/access/gather_pool.h"

#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"
#include "tests/support/formula_training.h"
#include "tests/support/parting_ranks.h"
#include "tests/support/run_ranks.h"
#include "tests/support/tiny_gpt.h"
#include "tests/zero/params/sharded_model.h"

namespace deepspeed::zero {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::Mlp;
using testing::named_parameters;
using testing::nothing_persistent;
using testing::shard;
using State = PartitionedStorage::State;

/// Enables CPU autocast to bfloat16 while it exists.
class Autocast {
 public:
  Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

template <class Model, class... Args>
std::shared_ptr<Model> make_model(Args... args) {
  auto model = std::make_shared<Model>(args...);
  testing::fill_parameters(*model, 0.2);
  return model;
}

/// Returns loss and gradients of one forward and backward.
std::vector<at::Tensor> results_of(torch::nn::Module& model, const std::function<at::Tensor()>& forward) {
  model.zero_grad();
  std::vector<at::Tensor> results;
  const at::Tensor loss = forward();
  loss.backward();
  results.push_back(loss.detach());
  for (const auto& param : model.parameters())
    results.push_back(param.grad().defined() ? param.grad().clone() : at::Tensor());
  return results;
}

void expect_equal(const std::vector<at::Tensor>& results, const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(results.size(), expected.size());
  for (size_t i = 0; i < results.size(); ++i) {
    ASSERT_EQ(results[i].defined(), expected[i].defined()) << i;
    if (!results[i].defined()) continue;
    EXPECT_TRUE(at::equal(results[i], expected[i])) << i;
  }
}

at::Tensor some_input(int64_t rows, int64_t columns, int rank = 0) {
  return at::arange(rows * columns, at::kFloat).add_(rank).sin_().view({rows, columns});
}

TEST(ParamAccess, ForwardAndBackwardEqualThePlainModelOnOneToFourRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      for (const int64_t limit : {int64_t{1'000'000}, int64_t{300}, int64_t{0}}) {
        const auto model = make_model<Mlp>(15, 3);
        const at::Tensor input = some_input(5, 15, world.rank());
        const auto run = [&] { return model->forward(input); };
        const auto expected = results_of(*model, run);
        const ShardStore store = shard(*model, world.group(), nothing_persistent(limit));
        const ParameterAccess access(model->parameters());
        expect_equal(results_of(*model, run), expected);
        expect_equal(results_of(*model, run), expected);
      }
    });
  }
}

TEST(ParamAccess, AGptWithATiedHeadEqualsThePlainOne) {
  for (const int ranks : {1, 2, 3}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      const auto model = make_model<testing::TinyGPT>(testing::TinyGPTConfig{});
      const at::Tensor tokens =
          at::arange(22, at::kLong).mul_(7).add_(world.rank()).remainder_(48).view({2, 11});
      const auto run = [&] { return model->forward(tokens, tokens.roll(1, 1)); };
      const auto expected = results_of(*model, run);
      const ShardStore store = shard(*model, world.group());
      const ParameterAccess access(store.pool());
      expect_equal(results_of(*model, run), expected);
      {
        const c10::NoGradGuard no_grad;
        EXPECT_TRUE(at::equal(run(), expected.front()));
      }
      {
        const c10::InferenceMode inference;
        EXPECT_TRUE(at::equal(run(), expected.front()));
      }
      expect_equal(results_of(*model, run), expected);
    });
  }
}

TEST(ParamAccess, AutocastEqualsThePlainModelUnderAutocast) {
  for (const int ranks : {1, 2, 3}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      for (const int64_t limit : {int64_t{1'000'000}, int64_t{0}}) {
        const auto model = make_model<testing::TinyGPT>(testing::TinyGPTConfig{});
        const at::Tensor tokens = at::arange(22, at::kLong).mul_(5).remainder_(48).view({2, 11});
        const auto run = [&] {
          const Autocast autocast;
          return model->forward(tokens, tokens.roll(1, 1)).to(at::kFloat);
        };
        const auto expected = results_of(*model, run);
        const ShardStore store = shard(*model, world.group(), nothing_persistent(limit));
        const ParameterAccess access(store.pool());
        expect_equal(results_of(*model, run), expected);
        expect_equal(results_of(*model, run), expected);
      }
    });
  }
}

// Returns the bytes that a forward adds to the live ones.
int64_t bytes_after_forward(const testing::AllocationCounter& counter, Mlp& model, const at::Tensor& input) {
  const int64_t before = counter.live_bytes();
  at::Tensor loss;
  {
    const ParameterAccess access(model.parameters());
    const Autocast autocast;
    loss = model.forward(input);
  }
  const int64_t after = counter.live_bytes();
  {
    const ParameterAccess access(model.parameters());
    loss.backward();
  }
  model.zero_grad();
  return after - before;
}

TEST(ParamAccess, UnderAutocastNoCopyOfTheModelLivesThroughForwardAndBackward) {
  testing::run_ranks(2, [](comm::World& world) {
    const testing::AllocationCounter counter;
    const auto model = make_model<Mlp>(128, 8);
    const at::Tensor input = some_input(2, 128);
    const int64_t copies = 7 * 128 * 128 * 2;  // the first layer's input needs no gradient
    const int64_t plain = bytes_after_forward(counter, *model, input);
    EXPECT_GT(plain, copies);  // so it is what is counted
    const ShardStore store = shard(*model, world.group());
    const int64_t partitioned = bytes_after_forward(counter, *model, input);
    EXPECT_LT(partitioned, plain - copies + 8 * 128 * 2);
    EXPECT_LT(partitioned, copies / 4);
    EXPECT_EQ(store.pool()->live_numel(), 0);
  });
}

TEST(ParamAccess, WholeParametersKeepToTheLiveLimitBothWays) {
  testing::run_ranks(2, [](comm::World& world) {
    const auto model = make_model<Mlp>(128, 8);
    const at::Tensor input = some_input(2, 128);
    const int64_t layer = 128 * 128 + 3 * 128;
    const ShardStore store = shard(*model, world.group(), nothing_persistent(2 * layer));
    const ParameterAccess access(store.pool());
    const testing::AllocationCounter counter;  // counts from this line on
    const at::Tensor loss = model->forward(input);
    EXPECT_LT(counter.peak_bytes(), 2 * layer * 4 + 100 * 1024);
    EXPECT_GT(counter.peak_bytes(), layer * 4);
    loss.backward();
    EXPECT_LE(store.pool()->live_numel(), 2 * layer);
    EXPECT_LT(counter.peak_bytes(), (8 + 2 + 1) * layer * 4 + 100 * 1024);  // with the gradients
  });
}

TEST(ParamAccess, UseOutsideOfAWindowThrowsWithTheNameAndTheWayOut) {
  testing::run_ranks(2, [](comm::World& world) {
    const auto model = make_model<Mlp>(8, 2);
    const ShardStore store = shard(*model, world.group());
    const at::Tensor input = some_input(2, 8);
    if (world.rank() == 1) {
      EXPECT_THAT(error_of<UsageError>([&] { model->forward(input); }),
                  AllOf(HasSubstr("'linear0.bias'"), HasSubstr("outside of an access window"),
                        HasSubstr("zero::ParameterAccess"), HasSubstr("aten::")));
      const at::NoGradGuard no_grad;
      EXPECT_THAT(error_of<UsageError>([&] { model->linear(0)->bias.zero_(); }),
                  AllOf(HasSubstr("writes it outside of an access window"),
                        HasSubstr("zero::GatheredParameters with a modifier_rank")));
      EXPECT_THAT(error_of<c10::Error>([&] { model->linear(1)->bias.data_ptr<float>(); }),
                  AllOf(HasSubstr("'linear1.bias'"), HasSubstr("GatheredParameters")));
    }
    at::Tensor loss;
    {
      const ParameterAccess outer(store.pool());
      const ParameterAccess inner(model->parameters());
      loss = model->forward(input);
    }
    EXPECT_EQ(store.pool()->live_numel(), 0);
    EXPECT_THAT(error_of<UsageError>([&] { loss.backward(); }), HasSubstr("outside of an access window"));
    EXPECT_ERROR(UsageError, store.pool()->close_window(), "no access window is open");
  });
}

TEST(ParamAccess, SizesAreTheLogicalOnesWithoutAWindow) {
  testing::run_ranks(2, [](comm::World& world) {
    const auto model = make_model<Mlp>(8, 1);
    const at::Tensor weight = model->linear(0)->weight;
    const ShardStore store = shard(*model, world.group());
    EXPECT_EQ(weight.unsafeGetTensorImpl(), model->linear(0)->weight.unsafeGetTensorImpl());
    EXPECT_EQ(weight.numel(), 64);
    EXPECT_EQ(weight.sizes(), (std::vector<int64_t>{8, 8}));
    EXPECT_EQ(at::zeros_like(weight).sum().item<float>(), 0.0F);
    EXPECT_TRUE(weight.is_leaf() && weight.requires_grad());
    EXPECT_EQ(weight.t().size(0), 8);
  });
}

TEST(ParamAccess, WritesThrowInsideOfAWindow) {
  testing::run_ranks(2, [](comm::World& world) {
    const auto model = make_model<Mlp>(8, 1);
    const ShardStore store = shard(*model, world.group());
    const ParameterAccess access(store.pool());
    const c10::NoGradGuard no_grad;
    for (const auto& write : std::vector<std::function<void()>>{
             [&] { model->linear(0)->weight.add_(1); }, [&] { model->linear(0)->weight.view({-1})[3] = 1; },
             [&] { model->linear(0)->weight.detach().zero_(); }}) {
      EXPECT_THAT(error_of<UsageError>(write), AllOf(HasSubstr("'linear0.weight'"), HasSubstr("writes"),
                                                     HasSubstr("GatheredParameters with a modifier_rank")));
    }
    EXPECT_EQ(store.pool()->live_numel(), 0);  // thrown before anything is gathered
  });
}

TEST(ParamAccess, ParametersThatNobodyUsesStayPartitioned) {
  testing::run_ranks(2, [](comm::World& world) {
    const auto model = make_model<Mlp>(8, 2);
    const ShardStore store = shard(*model, world.group());
    const ParameterAccess access(store.pool());
    // Another module uses a parameter: here a function uses its tensor.
    const at::Tensor input = some_input(3, 8);
    const at::Tensor output = at::linear(input, model->linear(1)->weight);
    EXPECT_EQ(output.size(1), 8);
    const auto& storages = store.storages(0);
    int num_whole = 0;
    for (const auto& storage : storages) num_whole += storage->state() == State::kWhole ? 1 : 0;
    EXPECT_EQ(num_whole, 1);
    EXPECT_EQ(store.pool()->live_numel(), 64);
    output.sum().backward();
    EXPECT_TRUE(model->linear(1)->weight.grad().defined());
    EXPECT_FALSE(model->linear(0)->weight.grad().defined());
  });
}

TEST(ParamAccess, SmallParametersStayWholeUntilTheirShardsChange) {
  testing::run_ranks(2, [](comm::World& world) {
    auto options = nothing_persistent();
    options.pool.keys.stage3_param_persistence_threshold = 8;
    options.pool.keys.stage3_model_persistence_threshold = 16;  // two of the six small ones
    const auto model = make_model<Mlp>(8, 2);
    ShardStore store = shard(*model, world.group(), options);
    const at::Tensor input = some_input(3, 8);
    at::Tensor first, second;
    {
      const ParameterAccess access(store.pool());
      first = model->forward(input).detach();
    }
    EXPECT_EQ(store.pool()->live_numel(), 16);
    store.groups()[0].flat.mul_(0.5);
    store.shards_changed();
    EXPECT_EQ(store.pool()->live_numel(), 0);
    {
      const ParameterAccess access(store.pool());
      second = model->forward(input).detach();
    }
    const auto expected = make_model<Mlp>(8, 2);
    EXPECT_TRUE(at::equal(first, expected->forward(input)));
    {
      const c10::NoGradGuard no_grad;
      for (auto& param : expected->parameters()) param.mul_(0.5);
    }
    EXPECT_TRUE(at::equal(second, expected->forward(input)));
  });
}

TEST(ParamAccess, ACopyOfAParameterThatChangedMeanwhileIsAnError) {
  testing::run_ranks(2, [](comm::World& world) {
    const auto model = make_model<Mlp>(8, 2);
    ShardStore store = shard(*model, world.group());
    const ParameterAccess access(store.pool());
    const at::Tensor copy = model->linear(1)->weight.to(at::kBFloat16);
    EXPECT_EQ(copy.sum().item<float>(), copy.clone().sum().item<float>());
    store.shards_changed();
    store.pool()->close_window();  // releases the copy, even if windows are open
    store.pool()->open_window();
    EXPECT_THAT(error_of<UsageError>([&] { copy.sum(); }),
                AllOf(HasSubstr("'linear1.weight'"), HasSubstr("was changed")));
  });
}

TEST(ParamAccess, ACopyThatIsWrittenIsATensorOfItsOwn) {
  testing::run_ranks(2, [](comm::World& world) {
    const auto model = make_model<Mlp>(8, 2);
    ShardStore store = shard(*model, world.group(), nothing_persistent(0));
    const c10::NoGradGuard no_grad;
    at::Tensor copy;
    {
      const ParameterAccess access(store.pool());
      copy = model->linear(1)->weight.to(at::kDouble);
      copy.zero_();
      model->forward(some_input(2, 8));
      EXPECT_EQ(copy.abs().sum().item<double>(), 0.0);
    }
    EXPECT_EQ(store.pool()->live_numel(), 64);
    copy.reset();
    EXPECT_EQ(store.pool()->live_numel(), 0);
  });
}

// Returns the error texts of two ranks that run `program` inside a window.
std::vector<std::string> errors_of(const std::function<void(Mlp&, comm::World&)>& program) {
  return testing::errors_of_two_ranks([&](comm::World& world) {
    const auto model = make_model<Mlp>(8, 2);
    const std::shared_ptr<ShardStore> store(new ShardStore(shard(*model, world.group())));
    return [&program, &world, model, store] {
      const ParameterAccess access(store->pool());
      program(*model, world);
    };
  });
}

TEST(ParamAccess, AParameterThatOneRankUsesAloneIsNamedWithinSeconds) {
  const auto texts = errors_of([](Mlp& model, comm::World& world) {
    if (world.rank() == 1) model.linear(1)->weight.sum();
    const at::Tensor loss = at::ones({7});
    world.group().all_reduce(loss);
  });
  for (const auto& text : texts)
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 called all_reduce"), HasSubstr("rank 1 called all_gather"),
                            HasSubstr("parameter 'linear1.weight'")));
}

TEST(ParamAccess, RanksThatUseParametersInDifferentOrdersAreToldBoth) {
  const auto texts = errors_of([](Mlp& model, comm::World& world) {
    const bool first = world.rank() == 0;
    model.linear(first ? 0 : 1)->weight.sum();  // both have the same size
    model.linear(first ? 1 : 0)->weight.sum();
  });
  for (const auto& text : texts)
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 called all_gather"), HasSubstr("parameter 'linear0.weight'"),
                            HasSubstr("rank 1 called all_gather"), HasSubstr("parameter 'linear1.weight'")));
}

TEST(ParamAccess, TwoModelsHaveWindowsOfTheirOwn) {
  testing::run_ranks(2, [](comm::World& world) {
    const auto a = make_model<Mlp>(8, 1);
    const auto b = make_model<Mlp>(8, 1);
    const at::Tensor input = some_input(2, 8);
    const at::Tensor expected = a->forward(input).detach();
    const ShardStore store_a = shard(*a, world.group());
    const ShardStore store_b = shard(*b, world.group());
    const ParameterAccess access(a->parameters());
    EXPECT_TRUE(at::equal(a->forward(input), expected));
    EXPECT_ERROR(UsageError, b->forward(input), "parameter 'linear0.bias' is partitioned over 2 ranks",
                 "open a zero::ParameterAccess");
    const ParameterAccess other(b->parameters());
    EXPECT_TRUE(at::equal(b->forward(input), expected));
  });
}

}  // namespace
}  // namespace deepspeed::zero
