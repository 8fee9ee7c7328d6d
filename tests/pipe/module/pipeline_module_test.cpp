// Tests what a stage builds, its names and seeds, and which of its layers are recomputed.
#include "deepspeed/pipe/module/pipeline_module.h"

#include <map>

#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/activation/checkpointing.h"
#include "deepspeed/device/accelerator/rng.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

using ::testing::ElementsAre;

int built = 0;

// Counts how often it is built.
struct CountedImpl : torch::nn::Module {
  explicit CountedImpl(int64_t size) : inner(register_module("inner", torch::nn::Linear(size, size))) {
    ++built;
  }
  at::Tensor forward(const at::Tensor& x) { return inner(x); }
  torch::nn::Linear inner;
};
TORCH_MODULE(Counted);

std::vector<std::string> names_of(const PipelineModule& module) {
  std::vector<std::string> names;
  for (const NamedTensor& param : module.named_parameters()) names.push_back(param.name);
  return names;
}

TEST(PipelineModule, BuildsTheLayersOfItsStageAlone) {
  run_ranks(2, [](comm::World& world) {
    for (const auto& [method, others] : std::map<std::string, int>{{"uniform", 0}, {"parameters", 4}}) {
      built = 0;
      const PipelineModule module(std::vector<LayerSpec>(4, LayerSpec::of<Counted>(3)),
                                  {.num_stages = 2, .partition_method = method});
      EXPECT_EQ(built, 2 + others) << method;
      EXPECT_EQ(module.parts(), (Parts{0, 2, 4}));
      EXPECT_EQ(names_of(module).front(), world.rank() == 0 ? "0.inner.weight" : "2.inner.weight");
      EXPECT_EQ(module.stage_of(3), 1);
    }
  });
}

TEST(PipelineModule, TakesASequenceAndFunctions) {
  run_ranks(1, [](comm::World&) {
    torch::nn::Sequential sequence(torch::nn::Linear(2, 3), torch::nn::ReLU(), torch::nn::Linear(3, 1));
    PipelineModule module(sequence, {.num_stages = 1});
    EXPECT_THAT(names_of(module), ElementsAre("0.weight", "0.bias", "2.weight", "2.bias"));
    EXPECT_TRUE(module(at::ones({4, 2}))[0].equal(sequence->forward(at::ones({4, 2}))));
    std::vector<LayerSpec> layers = {torch::nn::Linear(2, 2), [](const at::Tensor& x) { return x * 2; }};
    PipelineModule other(layers, {.num_stages = 1});
    EXPECT_THAT(names_of(other), ElementsAre("0.weight", "0.bias"));
    EXPECT_EQ(other(at::ones({4, 2}))[0].sizes(), at::IntArrayRef({4, 2}));
  });
}

TEST(PipelineModule, SeedsEachLayerWhereItIsBuiltAndRun) {
  run_ranks(1, [](comm::World&) {
    const std::vector<LayerSpec> layers = {LayerSpec::of<torch::nn::Linear>(3, 3),
                                           [](const at::Tensor& x) { return x + at::rand({3}); }};
    const auto weight_at = [](uint64_t seed) {
      device::seed_generators(seed);
      return torch::nn::Linear(3, 3)->weight.detach();
    };
    PipelineModule module(
        layers, {.num_stages = 1, .seed_layers = true, .base_seed = 50, .partition_method = "uniform"});
    EXPECT_TRUE(module.parameters()[0].equal(weight_at(50)));
    // DeepSpeed's rule: base_seed * (number of the forward, from 2 on) + layer.
    module.forward({at::ones({3})});
    const at::Tensor noise =
        module.forward({at::ones({3})})[0] - module.layers()[0].layer.forward({at::ones({3})})[0];
    device::seed_generators(50 * 3 + 1);
    EXPECT_TRUE(noise.allclose(at::rand({3}), 1e-5, 1e-6));

    std::vector<uint64_t> seeds;
    PipelineModule seen(layers, {.num_stages = 1,
                                 .seed_layers = true,
                                 .seed_fn = [&](uint64_t seed) { seeds.push_back(seed); },
                                 .partition_method = "uniform"});
    seen.forward({at::ones({3})});
    EXPECT_THAT(seeds, ElementsAre(1234, 1235, 2 * 1234, 2 * 1234 + 1));
  });
}

TEST(PipelineModule, OfSeededLayersHasTheSameWeightsOnAnyNumberOfStages) {
  run_ranks(2, [](comm::World&) {
    const std::vector<LayerSpec> layers(4, LayerSpec::of<torch::nn::Linear>(3, 3));
    for (const char* method : {"uniform", "parameters"}) {
      const auto made = [&](int num_stages) {
        return PipelineModule(layers,
                              {.num_stages = num_stages, .seed_layers = true, .partition_method = method});
      };
      device::seed_generators(1);
      const auto whole = made(1).named_parameters();
      device::seed_generators(2);
      const auto part = made(2).named_parameters();
      EXPECT_EQ(part.size(), whole.size() / 2);
      for (const NamedTensor& own : part) {
        const auto same = std::ranges::find(whole, own.name, &NamedTensor::name);
        ASSERT_NE(same, whole.end()) << own.name;
        EXPECT_TRUE(own.tensor.equal(same->tensor)) << own.name;
      }
    }
  });
}

TEST(PipelineModule, RecomputesBlocksOfTheLayersThatMayBe) {
  run_ranks(1, [](comm::World&) {
    std::vector<size_t> sizes;  // of the regions' results, one per region
    const auto recompute = [&](const pipe::TensorFunction& function, const pipe::Tensors& inputs) {
      auto outputs = checkpointing::checkpoint_tensors(function, inputs);
      sizes.push_back(size_t(outputs[0].size(-1)));
      return outputs;
    };
    const std::vector<LayerSpec> layers = {LayerSpec::of<torch::nn::Linear>(2, 3), torch::nn::ReLU(),
                                           torch::nn::ReLU(), torch::nn::ReLU(),
                                           LayerSpec::of<torch::nn::Linear>(3, 4)};
    const auto regions = [&](int interval, const std::vector<std::string>& names) {
      sizes.clear();
      PipelineModule module(layers, {.num_stages = 1,
                                     .partition_method = "uniform",
                                     .activation_checkpoint_interval = interval,
                                     .activation_checkpoint_func = recompute,
                                     .checkpointable_layers = names});
      module.forward({at::ones({5, 2})})[0].sum().backward();
      EXPECT_TRUE(module.parameters()[0].grad().defined());
      return sizes;
    };
    EXPECT_THAT(regions(0, {}), ElementsAre());
    EXPECT_THAT(regions(1, {}), ElementsAre(3, 4));  // blocks without parameters are not recomputed
    EXPECT_THAT(regions(2, {}), ElementsAre(3, 4));
    EXPECT_THAT(regions(1, {"ReLU"}), ElementsAre(3, 3, 3));
    EXPECT_THAT(regions(2, {"ReLU", "Linear"}), ElementsAre(3, 3, 4));
    EXPECT_THAT(regions(2, {"Linear"}), ElementsAre(4));
    EXPECT_ERROR(UsageError, regions(-1, {}), "activation_checkpoint_interval is -1");
  });
}

TEST(PipelineModule, RepeatsSeededDropoutWhereItIsRecomputed) {
  run_ranks(1, [](comm::World&) {
    const auto gradients = [](int interval) {
      std::vector<LayerSpec> layers;
      for (int i = 0; i < 3; ++i) {
        layers.push_back(LayerSpec::of<torch::nn::Linear>(6, 6));
        layers.push_back(LayerSpec::of<torch::nn::Dropout>(0.4));
      }
      PipelineModule module(layers, {.num_stages = 1,
                                     .seed_layers = true,
                                     .partition_method = "uniform",
                                     .activation_checkpoint_interval = interval});
      // Both forwards run before the first backward, as in a pipeline.
      const auto one = module.forward({at::ones({4, 6})})[0].square().sum();
      const auto two = module.forward({at::ones({4, 6}) * 2})[0].square().sum();
      one.backward();
      two.backward();
      std::vector<at::Tensor> found;
      for (const at::Tensor& param : module.parameters()) found.push_back(param.grad());
      return found;
    };
    const auto expected = gradients(0);
    for (const int interval : {1, 2, 4, 6}) {
      const auto found = gradients(interval);
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_TRUE(found[i].equal(expected[i])) << interval << " " << i;
    }
  });
}

TEST(PipelineModule, SaysWhereALossIsMissing) {
  run_ranks(1, [](comm::World&) {
    PipelineModule module({torch::nn::Linear(2, 2)}, {.num_stages = 1});
    const pipe::Tensors outputs = module(at::ones({3, 2}));
    EXPECT_ERROR(UsageError, module.loss(outputs, {}), "the last layer, layer 0 (torch::nn::LinearImpl)",
                 "[3, 2]", "give the PipelineModule a loss_fn");
    EXPECT_EQ(module.loss({outputs[0].sum()}, {}).dim(), 0);
    PipelineModule other(
        {torch::nn::Linear(2, 2)},
        {.num_stages = 1, .loss_fn = [](const at::Tensor& x, const at::Tensor&) { return x; }});
    EXPECT_ERROR(UsageError, other.loss(outputs, {at::ones({1})}), "loss_fn gives [3, 2]",
                 "expected a scalar");
  });
}

TEST(PipelineModule, RefusesOptionsThatContradictEachOther) {
  run_ranks(2, [](comm::World&) {
    const std::vector<LayerSpec> layers(4, LayerSpec::of<torch::nn::Linear>(2, 2));
    EXPECT_ERROR(UsageError,
                 PipelineModule(layers, {.num_stages = 1, .topology = PipeDataParallelTopology(2, 1)}),
                 "num_stages is 1", "of `topology` has 2");
    EXPECT_ERROR(UsageError, PipelineModule(layers, {.num_stages = 2, .model_chunks = 0}),
                 "model_chunks is 0");
    EXPECT_ERROR(UsageError, PipelineModule(layers, {.num_stages = 2, .model_chunks = 3}),
                 "model_chunks is 3", "the 4 layers into 6 parts");
  });
}

}  // namespace
}  // namespace deepspeed::testing
