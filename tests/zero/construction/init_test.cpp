#include "deepspeed/zero/init.h"

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/param_access.h"
#include "deepspeed/zero/params/named_parameters.h"
#include "deepspeed/zero/params/set_values.h"

#include "tests/support/counting_allocator.h"
#include "tests/support/error_of.h"
#include "tests/support/move_to_meta.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"
#include "tests/zero/construction/built_net.h"
#include "tests/zero/construction/built_under_init.h"
#include "tests/zero/params/sharded_model.h"

namespace deepspeed::zero {
namespace {

using ::testing::AllOf;
using testing::built_under_init;
using testing::BuiltNet;
using testing::error_of;
using ::testing::HasSubstr;
using testing::Mlp;
using testing::named_parameters;
using testing::on_disk;

constexpr uint64_t kSeed = 20;

void expect_values(const torch::nn::Module& model, const torch::nn::Module& expected) {
  const GatheredParameters gathered(model.parameters());
  for (const auto& item : expected.named_parameters()) {
    const at::Tensor found = model.named_parameters()[item.key()];
    EXPECT_TRUE(at::equal(found.detach(), item.value().detach().to(found.scalar_type()))) << item.key();
  }
}

class ZeroInit : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ZeroInit, ::testing::Values(1, 2, 3, 4));

TEST_P(ZeroInit, GivesTheValuesOfRankZerosOrdinaryModelWhateverTheConstructorDoes) {
  testing::run_ranks(GetParam(), [](comm::World& world) {
    torch::manual_seed(kSeed);
    const BuiltNet expected;
    for (const int64_t whole : {int64_t{0}, int64_t{600}, int64_t{1} << 30}) {
      torch::manual_seed(kSeed + world.rank());
      const auto model = built_under_init<BuiltNet>({.world = world, .max_whole_bytes = whole});
      EXPECT_TRUE(world.rank() != 0 || at::equal(model->frozen, expected.frozen));
      model->frozen.copy_(expected.frozen);  // only initialize() sends rank 0's
      expect_values(*model, expected);
      const auto buffers = model->named_buffers();
      EXPECT_EQ(buffers["norm.running_var"].sum().item<float>(), 13.0F);
      if (world.rank() != 0) continue;
      for (const auto& item : expected.named_buffers())
        EXPECT_TRUE(at::equal(buffers[item.key()], item.value())) << item.key() << " " << whole;
    }
  });
}

TEST_P(ZeroInit, KeepsSizesTyingGradientFlagsAndWhatIsNoParameter) {
  testing::run_ranks(GetParam(), [](comm::World& world) {
    const auto model = built_under_init<BuiltNet>({.world = world, .max_whole_bytes = 0});
    EXPECT_TRUE(is_partitioned(model->first->weight));
    EXPECT_EQ(model->first->weight.sizes(), at::IntArrayRef({13, 8}));
    EXPECT_EQ(model->first->weight.numel(), 104);
    EXPECT_TRUE(model->first->weight.requires_grad());
    EXPECT_TRUE(model->head->parameters()[0].is_same(model->embedding->weight));
    // Registered without a gradient: it stays whole until the engine takes it.
    EXPECT_FALSE(is_partitioned(model->frozen));
    for (const at::Tensor& buffer : model->buffers()) EXPECT_FALSE(is_partitioned(buffer));
  });
}

TEST_P(ZeroInit, HoldsTheShardsAndAFewLayers) {
  testing::run_ranks(GetParam(), [](comm::World& world) {
    constexpr int64_t kLayer = 4 * (128 * 128 + 3 * 128), kLayers = 16;
    const testing::AllocationCounter counter;
    const auto model =
        built_under_init<Mlp>({.world = world, .max_whole_bytes = 2 * kLayer}, int64_t{128}, kLayers);
    const int64_t shards = kLayers * kLayer / world.size();
    EXPECT_LE(counter.live_bytes(), shards + 4096);  // padding, and what the transport holds for a moment
    // The limit, the newest parameter, and one being sent.
    if (world.size() > 1) {
      EXPECT_LE(counter.peak_bytes(), shards + 5 * kLayer);
    }
  });
}

TEST_P(ZeroInit, GivesTheSameValuesWhereverTheShardsAre) {
  const testing::TemporaryFolder folder;
  testing::run_ranks(GetParam(), [&](comm::World& world) {
    torch::manual_seed(kSeed);
    Mlp expected(128, 3);
    // Late changes, and changes of a parameter for the second time.
    const auto change = [](Mlp& model) {
      const c10::NoGradGuard no_grad;
      model.linear(0)->weight.mul_(3.0);
      model.linear(0)->weight.add_(model.linear(2)->weight);
      model.linear(1)->weight.copy_(model.linear(0)->weight);
    };
    change(expected);
    const Json nowhere = on_disk(folder.string(), "none");
    for (const InitArguments& arguments :
         {InitArguments{.remote_device = "cpu"}, InitArguments{.remote_device = "cpu", .pin_memory = true},
          InitArguments{.remote_device = "nvme", .config_dict_or_path = nowhere},
          InitArguments{.config_dict_or_path = on_disk(folder.string())}}) {
      torch::manual_seed(kSeed + world.rank());
      InitArguments of_world = arguments;
      of_world.world = world;
      of_world.max_whole_bytes = 0;
      std::shared_ptr<Mlp> model;
      {
        const Init init(of_world);
        model = std::make_shared<Mlp>(128, 3);
        change(*model);
      }
      expect_values(*model, expected);
      set_values(model->linear(1)->weight, at::ones({128, 128}));
      const ParameterAccess access(model->parameters());
      EXPECT_EQ(model->linear(1)->weight.sum().item<float>(), 128 * 128);
      EXPECT_TRUE(at::equal(model->linear(0)->weight, expected.linear(0)->weight));
    }
  });
}

TEST_P(ZeroInit, OnADiskHoldsTheBuffersAndAFewLayers) {
  const testing::TemporaryFolder folder;
  testing::run_ranks(GetParam(), [&](comm::World& world) {
    constexpr int64_t kLayer = 4 * (128 * 128 + 3 * 128), kLayers = 16;
    const testing::AllocationCounter counter;
    const auto model = built_under_init<Mlp>(
        {.config_dict_or_path = on_disk(folder.string()), .world = world, .max_whole_bytes = 2 * kLayer},
        int64_t{128}, kLayers);
    // Two buffers of a matrix, and the vectors, which are too short for the disk.
    const int64_t held = 2 * (4 * 128 * 128 / world.size() + 4096) + kLayers * 4 * 3 * 128 + 4096;
    EXPECT_LE(counter.live_bytes(), held);
    EXPECT_LE(counter.peak_bytes(), held + 5 * kLayer);
    EXPECT_LT(held, kLayers * kLayer / world.size()) << "else this says nothing";
  });
}

TEST(ZeroInitShards, NeedADiskOnEveryRank) {
  testing::run_ranks(3, [](comm::World& world) {
    const Json config = on_disk(world.rank() == 1 ? "/proc/none" : "/tmp");
    EXPECT_THAT(error_of<IoError>([&] { const Init init({.config_dict_or_path = config, .world = world}); }),
                AllOf(HasSubstr("offload_param.nvme_path"), HasSubstr("/proc/none")));
  });
}

TEST(ZeroInitShards, AreOfTheTypeThatIsAskedForAndDrawnAsInFullPrecision) {
  testing::run_ranks(2, [](comm::World& world) {
    torch::manual_seed(kSeed);
    const BuiltNet expected;
    torch::manual_seed(kSeed);
    const auto model =
        built_under_init<BuiltNet>({.dtype = at::kBFloat16, .world = world, .max_whole_bytes = 0});
    EXPECT_EQ(model->last->bias.scalar_type(), at::kBFloat16);
    EXPECT_EQ(shard_of(model->last->bias).scalar_type(), at::kBFloat16);
    EXPECT_EQ(model->norm->running_mean.scalar_type(), at::kFloat);
    // Parameters that no late initialiser computes from rounded values.
    const GatheredParameters gathered(model->parameters());
    for (const char* name : {"first.weight", "lstm.weight_hh_l1", "norm.weight", "embedding.weight"}) {
      const at::Tensor found = model->named_parameters()[name];
      EXPECT_TRUE(at::equal(found.detach(), expected.named_parameters()[name].detach().to(at::kBFloat16)))
          << name;
    }
  });
}

TEST(ZeroInitUse, GathersWhatIsReadAndRefusesWrites) {
  testing::run_ranks(2, [](comm::World& world) {
    torch::manual_seed(kSeed);
    Mlp plain(7, 2);
    torch::manual_seed(kSeed + world.rank());
    const auto model = built_under_init<Mlp>({.world = world}, 7, 2);
    const at::Tensor input = at::arange(14, at::kFloat).view({2, 7});
    // Code that adapts a model before initialize() does this.
    EXPECT_TRUE(at::equal(model->linear(0)->weight.clone(), plain.linear(0)->weight));
    const at::Tensor loss = model->forward(input).sum();
    plain.forward(input).sum().backward();
    loss.backward();
    for (const auto& param : model->named_parameters()) {
      EXPECT_TRUE(at::equal(param.value().grad(), plain.named_parameters()[param.key()].grad()))
          << param.key();
    }
    {
      // This pool stands for an engine. Its forward would train a parameter that no engine owns.
      const auto trained = built_under_init<Mlp>({.world = world}, 7, 2);
      const ParameterAccess forward(trained->parameters(), AccessMode::kForward);
      EXPECT_THAT(error_of<UsageError>([&] { model->forward(input); }), HasSubstr("no engine has it"));
      const at::NoGradGuard frozen;
      EXPECT_TRUE(at::equal(model->forward(input), plain.forward(input)));
    }
    const at::NoGradGuard no_grad;
    EXPECT_THAT(error_of<UsageError>([&] { model->linear(0)->weight.zero_(); }),
                AllOf(HasSubstr("of zero::Init, of sizes [7"), HasSubstr("GatheredParameters"),
                      HasSubstr("no engine has it")));
    const ParameterAccess access(model->parameters());
    EXPECT_TRUE(at::equal(model->forward(input), plain.forward(input)));
  });
}

TEST(ZeroInitUse, InsideOfGatheredParametersWhileItLivesKeepsTheModifiersValues) {
  for (const int ranks : {1, 2, 3}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      for (const int64_t whole : {int64_t{0}, int64_t{1} << 30}) {
        torch::nn::Linear a{nullptr}, b{nullptr};
        {
          const Init init({.world = world, .max_whole_bytes = whole});
          a = torch::nn::Linear(5, 3);
          b = torch::nn::Linear(5, 3);
          const int last = world.size() - 1;
          {
            const GatheredParameters gathered({a->weight, b->bias}, last);
            auto* const values = a->weight.data_ptr<float>();
            at::zeros({1000});
            for (int i = 0; i < 15; ++i) values[i] = static_cast<float>(10 * world.rank() + i);
            const c10::NoGradGuard no_grad;
            b->bias.fill_(world.rank());
          }
          const auto spoil = [&] {
            const GatheredParameters gathered({b->bias}, 0);
            const c10::NoGradGuard no_grad;
            b->bias.fill_(77);
            throw std::runtime_error("spoilt");
          };
          EXPECT_ERROR(std::runtime_error, spoil(), "spoilt");
        }
        const GatheredParameters gathered({a->weight, b->bias});
        EXPECT_EQ(a->weight.detach()[2][4].item<float>(), 10.0F * float(world.size() - 1) + 14);
        EXPECT_EQ(b->bias.detach()[1].item<float>(), float(world.size() - 1));
      }
    });
  }
}

TEST(ZeroInitClose, WithAModelPartitionsItsParametersAndNothingElse) {
  testing::run_ranks(2, [](comm::World& world) {
    const testing::AllocationCounter counter;
    Init init({.world = world, .max_whole_bytes = 0});
    const auto model = std::make_shared<BuiltNet>();
    at::Tensor stray = at::full({6}, 3.0).requires_grad_();
    at::zeros({1000});
    at::zeros({1000});
    EXPECT_TRUE(is_partitioned(stray));
    EXPECT_EQ(stray.sum().item<float>(), 18.0F);
    init.close(*model);
    init.close();
    EXPECT_FALSE(is_partitioned(stray));
    EXPECT_EQ(stray.const_data_ptr<float>()[5], 3.0F);
    EXPECT_TRUE(is_partitioned(model->frozen));
    const c10::NoGradGuard no_grad;
    EXPECT_THAT(error_of<UsageError>([&] { model->frozen.zero_(); }), HasSubstr("'frozen'"));
    EXPECT_THAT(error_of<UsageError>([&] { model->last->weight.zero_(); }), HasSubstr("'last.weight'"));
    const c10::AutoGradMode grad(true);
    EXPECT_FALSE(is_partitioned(at::ones({3}).requires_grad_()));  // the construction has ended
  });
}

TEST(ZeroInitClose, PartitionsAnOldModelAtOnce) {
  for (const int ranks : {1, 2, 3}) {
    testing::run_ranks(ranks, [](comm::World& world) {
      torch::manual_seed(kSeed);
      const BuiltNet expected;
      torch::manual_seed(kSeed + world.rank());
      const auto model = std::make_shared<BuiltNet>();
      const Init init({.module = model, .world = world});
      for (const at::Tensor& param : model->parameters()) EXPECT_TRUE(is_partitioned(param));
      EXPECT_FALSE(is_partitioned(at::ones({3}).requires_grad_()));
      expect_values(*model, expected);
    });
  }
}

TEST(ZeroInitClose, PartitionsTheNamedParametersOfAModelOfAnotherFrontEnd) {
  testing::run_ranks(2, [](comm::World& world) {
    torch::manual_seed(kSeed);
    const BuiltNet expected;
    torch::manual_seed(kSeed);
    const auto model = std::make_shared<BuiltNet>();
    const Init init({.parameters = named_parameters(*model), .world = world});
    for (const at::Tensor& param : model->parameters()) EXPECT_TRUE(is_partitioned(param));
    expect_values(*model, expected);
    EXPECT_THAT(error_of<UsageError>([&] {
                  const Init both({.module = model, .parameters = named_parameters(*model), .world = world});
                }),
                HasSubstr("got module and parameters; expected one of them"));
  });
}

TEST(ZeroInitClose, RefusesParametersThatItWouldUntie) {
  testing::run_ranks(1, [](comm::World& world) {
    const auto model = std::make_shared<Mlp>(4, 1);
    model->register_parameter("twin", model->linear(0)->weight.detach());
    EXPECT_THAT(error_of<UsageError>([&] { const Init init({.module = model, .world = world}); }),
                AllOf(HasSubstr("'linear0.weight'"), HasSubstr("'twin'"), HasSubstr("share memory")));
  });
}

TEST(ZeroInitMeta, ParametersWaitForTheirValues) {
  testing::run_ranks(2, [](comm::World& world) {
    const testing::AllocationCounter counter;
    const auto options = torch::nn::LinearOptions(512, 512);
    const auto model = std::make_shared<torch::nn::Module>("net");
    for (const char* name : {"a", "b"}) {
      auto layer = torch::nn::Linear(options);
      testing::move_to_meta(*layer);
      model->register_module(name, layer);
    }
    const int64_t whole_peak = counter.peak_bytes();
    const Init init({.module = model, .world = world});
    EXPECT_LE(counter.peak_bytes(), whole_peak + 4 * 512 * 513);  // the shards
    const at::Tensor weight = model->named_parameters()["a.weight"];
    EXPECT_TRUE(weight.is_cpu());
    {
      const GatheredParameters gathered({weight});
      EXPECT_TRUE(weight.isnan().all().item<bool>());
    }
    {
      const GatheredParameters gathered({weight}, 0);
      torch::nn::init::constant_(weight, 2.0);
    }
    set_values(model->named_parameters()["b.bias"], at::arange(512, at::kFloat));
    const ParameterAccess access(model->parameters());
    EXPECT_EQ(weight.sum().item<float>(), 2.0F * 512 * 512);
    EXPECT_EQ(model->named_parameters()["b.bias"].sum().item<float>(), 511.0F * 256);
  });
}

}  // namespace
}  // namespace deepspeed::zero
