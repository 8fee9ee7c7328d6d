// Recomputation gives the gradients of a plain run bit for bit.
#include "deepspeed/activation/checkpoint.h"

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/types.h>

#include <gtest/gtest.h>

#include "deepspeed/activation/offload_activations.h"
#include "deepspeed/autograd/saved_bytes.h"
#include "deepspeed/autograd/split_backward.h"
#include "deepspeed/base/error.h"
#include "deepspeed/comm/functions.h"
#include "deepspeed/deepspeed.h"
#include "deepspeed/engine/ranks/mpu.h"
#include "deepspeed/precision/autocast.h"
#include "deepspeed/random/rng_tracker.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

using checkpointing::checkpoint;
using Tensors = std::vector<at::Tensor>;

struct Block : torch::nn::Module {
  explicit Block(int64_t width)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        up(register_module("up", torch::nn::Linear(width, 3 * width))),
        down(register_module("down", torch::nn::Linear(3 * width, width))) {}
  at::Tensor forward(const at::Tensor& hidden) {
    return hidden + torch::dropout(down(torch::gelu(up(norm(hidden)))), 0.3, /*train=*/true);
  }
  torch::nn::LayerNorm norm;
  torch::nn::Linear up, down;
};

using Blocks = std::vector<std::shared_ptr<Block>>;

Blocks make_blocks() {
  torch::manual_seed(1);
  Blocks blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(std::make_shared<Block>(8));
  return blocks;
}

// What a run leaves: outputs, gradients of the input and of all parameters, and the generator's next numbers.
using Way = std::function<at::Tensor(const Blocks&, at::Tensor)>;

Tensors results_of(const Way& way, bool input_needs_grad = true) {
  const Blocks blocks = make_blocks();
  torch::manual_seed(2);
  const at::Tensor input = torch::randn({2, 5, 8}).requires_grad_(input_needs_grad);
  const at::Tensor output = way(blocks, input);
  Tensors results = {output.detach().clone()};
  output.pow(2).sum().backward();
  if (input_needs_grad) results.push_back(input.grad());
  for (const auto& block : blocks) {
    for (const at::Tensor& param : block->parameters()) results.push_back(param.grad());
  }
  results.push_back(torch::rand({3}));
  return results;
}

at::Tensor plain(const Blocks& blocks, at::Tensor hidden) {
  for (const auto& block : blocks) hidden = block->forward(hidden);
  return hidden;
}

void expect_equal(const Tensors& results, const Tensors& expected) {
  ASSERT_EQ(results.size(), expected.size());
  for (size_t i = 0; i < results.size(); ++i) EXPECT_TRUE(results[i].equal(expected[i])) << "result " << i;
}

auto forward_of(const std::shared_ptr<Block>& block) {
  return [block](const at::Tensor& hidden) { return block->forward(hidden); };
}

at::Tensor each_block(const Blocks& blocks, at::Tensor hidden) {
  for (const auto& block : blocks) hidden = checkpoint(forward_of(block), std::move(hidden));
  return hidden;
}

TEST(Checkpoint, EqualsAPlainRunWithDropout) {
  expect_equal(results_of(each_block), results_of(plain));
  expect_equal(results_of(each_block, false), results_of(plain, false));
}

TEST(Checkpoint, RunsInsideOfAnother) {
  const Way nested = [](const Blocks& blocks, at::Tensor hidden) {
    for (size_t i = 0; i < blocks.size(); i += 2) {
      hidden = checkpoint(
          [a = blocks[i], b = blocks[i + 1]](at::Tensor inner) {
            inner = checkpoint(forward_of(a), std::move(inner));
            return checkpoint(forward_of(b), std::move(inner));
          },
          std::move(hidden));
    }
    return hidden;
  };
  expect_equal(results_of(nested), results_of(plain));
}

TEST(Checkpoint, EqualsAPlainRunUnderAutocast) {
  const auto under_autocast = [](const Way& way) -> Way {
    return [way](const Blocks& blocks, at::Tensor hidden) {
      const precision::AutocastScope autocast(at::kCPU, at::kBFloat16);
      return way(blocks, std::move(hidden)).to(at::kFloat);
    };
  };
  expect_equal(results_of(under_autocast(each_block)), results_of(under_autocast(plain)));
}

TEST(Checkpoint, KeepsTheResultsOfProducts) {
  const Way selective = [](const Blocks& blocks, at::Tensor hidden) {
    for (const auto& block : blocks)
      hidden = checkpointing::checkpoint_keeping_products(forward_of(block), std::move(hidden));
    return hidden;
  };
  expect_equal(results_of(selective), results_of(plain));
}

TEST(Checkpoint, ReentersAsDeepSpeedsFunction) {
  const Way reentrant = [](const Blocks& blocks, at::Tensor hidden) {
    for (const auto& block : blocks)
      hidden = checkpointing::reentrant_checkpoint(forward_of(block), std::move(hidden));
    return hidden;
  };
  expect_equal(results_of(reentrant), results_of(plain));
}

TEST(Checkpoint, ComesInTwoHalves) {
  const auto in_halves = [](bool reenters) {
    const Blocks blocks = make_blocks();
    torch::manual_seed(2);
    const at::Tensor input = torch::randn({2, 5, 8}).requires_grad_();
    at::Tensor hidden = input;
    for (const auto& block : blocks) {
      hidden = reenters ? checkpointing::reentrant_checkpoint(forward_of(block), std::move(hidden))
                        : checkpoint(forward_of(block), std::move(hidden));
    }
    Tensors results = {hidden.detach().clone()};
    autograd::WeightBackward later;
    const at::Tensor loss = hidden.pow(2).sum();
    hidden.reset();
    const Tensors of_inputs = autograd::backward_inputs({loss}, {torch::ones_like(loss)}, {input}, later);
    results.push_back(of_inputs.front());
    EXPECT_FALSE(blocks.front()->up->weight.grad().defined());
    later.run();
    for (const auto& block : blocks) {
      for (const at::Tensor& param : block->parameters()) results.push_back(param.grad());
    }
    results.push_back(torch::rand({3}));
    return results;
  };
  expect_equal(in_halves(false), results_of(plain));
  expect_equal(in_halves(true), results_of(plain));
}

TEST(Checkpoint, TakesAndReturnsWhatTheFunctionDoes) {
  const at::Tensor x = torch::ones({2}).requires_grad_(), y = torch::full({2}, 3.0).requires_grad_();
  const auto [product, sum, count] = checkpoint(
      [](const at::Tensor& a, double factor, const std::vector<at::Tensor>& others,
         std::optional<at::Tensor> none) {
        EXPECT_FALSE(none.has_value());
        return std::tuple(a.exp() * others.front() * factor, (a + others.front()).tanh(), int(others.size()));
      },
      x, 2.0, std::vector<at::Tensor>{y}, std::optional<at::Tensor>());
  EXPECT_EQ(count, 1);
  (product.sum() + sum.sum()).backward();
  const at::Tensor slope = 1 - at::tanh(at::full({2}, 4.0)).pow(2);
  EXPECT_TRUE(x.grad().allclose(2 * 3 * at::ones({2}).exp() + slope));
  EXPECT_TRUE(y.grad().allclose(2 * at::ones({2}).exp() + slope));
}

TEST(Checkpoint, ComputesOnlyOnceWithoutGradients) {
  int calls = 0;
  const at::NoGradGuard no_grad;
  checkpoint([&](const at::Tensor& x) { return ++calls, x * 2; }, torch::ones({2}).requires_grad_());
  EXPECT_EQ(calls, 1);
}

TEST(Checkpoint, SaysWhereTheFunctionComputesSomethingElse) {
  auto calls = std::make_shared<int>(0);
  const at::Tensor x = torch::ones({2}).requires_grad_();
  const at::Tensor y = checkpoint(
      [calls](const at::Tensor& value) { return (*calls)++ == 0 ? value.exp().exp() : value * 1; }, x);
  EXPECT_TRUE(throws_error<UsageError>([&] { y.sum().backward(); },
                                       {"less tensors for backward", "the same each time"}));
}

TEST(Checkpoint, KeepsInputsOnTheHostAndInParts) {
  class TwoRanks : public Mpu {
   public:
    explicit TwoRanks(int rank) : own_(comm::new_group({0})), other_(comm::new_group({1})), rank_(rank) {}
    comm::ProcessGroup get_data_parallel_group() const override { return rank_ == 0 ? own_ : other_; }
    comm::ProcessGroup get_model_parallel_group() const override { return comm::get_world_group(); }
    bool is_model_parallel_parameter(const at::Tensor&) const override { return true; }

   private:
    comm::ProcessGroup own_, other_;
    int rank_;
  };
  run_ranks(2, [](comm::World& world) {
    const auto mpu = std::make_shared<TwoRanks>(world.rank());
    const Tensors expected = results_of(plain);
    for (const bool in_cpu : {false, true}) {
      for (const bool in_parts : {false, true}) {
        for (const bool in_buffers : {false, true}) {
          if (in_buffers && !in_parts) continue;
          checkpointing::configure(mpu, {.partition_activations = in_parts,
                                         .contiguous_checkpointing = in_buffers,
                                         .num_checkpoints = 4,
                                         .checkpoint_in_cpu = in_cpu});
          for (int step = 0; step < 3; ++step) expect_equal(results_of(each_block), expected);
        }
      }
    }
    EXPECT_TRUE(checkpointing::is_configured());
    checkpointing::configure(mpu, {.partition_activations = true});
    const at::Tensor odd = torch::ones({3}).requires_grad_();
    EXPECT_TRUE(throws_error<UsageError>([&] { checkpoint([](const at::Tensor& x) { return x * 2; }, odd); },
                                         {"3 elements", "2 model-parallel ranks"}));
  });
}

TEST(Checkpoint, KeepsTheBytesThatAreForetold) {
  const int64_t hidden_bytes = 2 * 5 * 8 * int64_t(sizeof(float));
  const auto kept_by = [](const Way& way) {
    const Blocks blocks = make_blocks();
    Tensors parameters;
    for (const auto& block : blocks) {
      for (const at::Tensor& param : block->parameters()) parameters.push_back(param);
    }
    const autograd::SavedBytes saved(parameters);
    way(blocks, torch::randn({2, 5, 8}).requires_grad_());
    return saved.bytes();
  };
  EXPECT_EQ(kept_by(each_block), 4 * hidden_bytes) << "the inputs of four regions";
  const Way pairs = [](const Blocks& blocks, at::Tensor hidden) {
    for (size_t i = 0; i < blocks.size(); i += 2) {
      hidden = checkpoint([a = blocks[i], b = blocks[i + 1]](
                              const at::Tensor& inner) { return b->forward(a->forward(inner)); },
                          std::move(hidden));
    }
    return hidden;
  };
  EXPECT_EQ(kept_by(pairs), 2 * hidden_bytes);
  // Of a block: input and two statistics of the norm, its output, what goes into and out of gelu (three times
  // as wide), the mask of the dropout.
  const int64_t rows = 2 * 5;
  const int64_t of_block = 2 * hidden_bytes + 2 * 3 * hidden_bytes + 2 * rows * int64_t(sizeof(float));
  EXPECT_GE(kept_by(plain), 4 * of_block);
}

TEST(OffloadActivations, GivesTheGradientsOfAPlainRunWithinItsBudget) {
  int64_t copies = 0, most = 0;
  const auto offloaded = [&](int64_t budget) -> Way {
    return [&copies, &most, budget](const Blocks& blocks, at::Tensor hidden) {
      checkpointing::OffloadOptions options{.budget_bytes = budget, .min_offload_bytes = 256};
      for (const auto& block : blocks) {
        for (const at::Tensor& param : block->parameters()) options.excluded.push_back(param);
      }
      const checkpointing::OffloadActivations offload(options);
      for (const auto& block : blocks) hidden = block->forward(hidden);
      copies = offload.num_copies();
      most = offload.offloaded_bytes();
      return hidden;
    };
  };
  expect_equal(results_of(offloaded(1 << 20)), results_of(plain));
  EXPECT_GT(copies, 8);
  EXPECT_LE(most, 1 << 20);
  expect_equal(results_of(offloaded(1000)), results_of(plain));
  EXPECT_GT(copies, 0);
  EXPECT_LE(most, 1000);
  expect_equal(results_of(offloaded(0)), results_of(plain));
  EXPECT_EQ(copies, 0);
}

TEST(OffloadActivations, NoticesThatATensorWasWrittenTo) {
  const at::Tensor x = torch::ones({4}).requires_grad_();
  const checkpointing::OffloadActivations offload({.budget_bytes = 0});
  at::Tensor y = x.exp();
  const at::Tensor z = (y * 1).sum();
  y.mul_(2);
  EXPECT_TRUE(throws_error<UsageError>([&] { (y.sum() + z).backward(); }, {"written to in place"}));
}

TEST(Checkpoint, RefusesOptionsThatContradictEachOther) {
  const auto refuses = [](const checkpointing::ConfigureOptions& options, const char* text) {
    EXPECT_TRUE(throws_error<UsageError>([&] { checkpointing::configure(nullptr, options); }, {text}));
  };
  refuses({.contiguous_checkpointing = true}, "only available with partitioned activations");
  refuses({.partition_activations = true, .contiguous_checkpointing = true}, "num_checkpoints");
  refuses({.partition_activations = true, .contiguous_checkpointing = true, .num_checkpoints = 0},
          "num_checkpoints is 0");
  checkpointing::configure(
      nullptr, {.deepspeed_config =
                    Json{{"train_batch_size", 1},
                         {"activation_checkpointing", {{"cpu_checkpointing", true}, {"profile", false}}}}});
  EXPECT_TRUE(checkpointing::current_options().checkpoint_in_cpu);
  checkpointing::configure(nullptr);
  EXPECT_FALSE(checkpointing::current_options().checkpoint_in_cpu);
}

// A model that recomputes its blocks, for the engine.
struct Recomputing : torch::nn::Module {
  explicit Recomputing(bool recomputes) : recomputes(recomputes), blocks(make_blocks()) {
    for (size_t i = 0; i < blocks.size(); ++i) register_module("block" + std::to_string(i), blocks[i]);
  }
  at::Tensor forward(const at::Tensor& hidden) {
    return (recomputes ? each_block(blocks, hidden) : plain(blocks, hidden)).pow(2).mean();
  }
  bool recomputes;
  Blocks blocks;
};

TEST(Checkpoint, TrainsAtEachStageAsAPlainModel) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool offloads : {false, true}) {
      if (offloads && stage < 3) continue;
      run_ranks(2, [&](comm::World& world) {
        const auto losses_of = [&](bool recomputes) {
          Json zero = {{"stage", stage}};
          if (offloads) zero["offload_param"] = {{"device", "cpu"}};
          const Json config = {{"train_micro_batch_size_per_gpu", 2},
                               {"zero_optimization", zero},
                               {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.01}}}}}};
          const auto engine =
              initialize(std::make_shared<Recomputing>(recomputes), {.config = config}).engine;
          std::vector<double> losses;
          for (int step = 0; step < 4; ++step) {
            torch::manual_seed(10 * step + world.rank());
            const at::Tensor loss = (*engine)(torch::randn({2, 5, 8}));
            engine->backward(loss);
            engine->step();
            losses.push_back(loss.item<double>());
          }
          return losses;
        };
        const auto expected = losses_of(false);
        EXPECT_EQ(losses_of(true), expected) << "stage " << stage << (offloads ? " with offload" : "");
        EXPECT_NE(expected[0], expected[3]);
      });
    }
  }
}

}  // namespace
}  // namespace deepspeed::testing
