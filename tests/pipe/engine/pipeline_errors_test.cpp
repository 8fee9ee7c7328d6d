// An error in a pipeline ends all its ranks with a text that says what failed and in which place.
#include <csignal>
#include <regex>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <gtest/gtest.h>

#include "deepspeed/optim/slices/optimizer_with_states.h"

#include "tests/pipe/engine/small_pipeline.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

std::vector<pipe::MicroBatch> rows(int count, int64_t width) {
  return std::vector<pipe::MicroBatch>(size_t(count), {{at::ones({2, width})}, {at::zeros({2, 1})}});
}

at::Tensor squares(const at::Tensor& outputs, const at::Tensor& labels) {
  return (outputs - labels).pow(2).mean();
}

Json plain_config(int micro_batches = 2) {
  return {{"train_micro_batch_size_per_gpu", 2},
          {"gradient_accumulation_steps", micro_batches},
          {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.01}}}}}};
}

std::shared_ptr<PipelineModule> two_stages(std::vector<LayerSpec> layers) {
  return std::make_shared<PipelineModule>(
      std::move(layers),
      PipelineModuleOptions{.num_stages = 2, .loss_fn = squares, .partition_method = "uniform"});
}

std::vector<LayerSpec> linears() {
  return {LayerSpec::of<torch::nn::Linear>(4, 4), LayerSpec::of<torch::nn::Linear>(4, 4),
          LayerSpec::of<torch::nn::Linear>(4, 4), LayerSpec::of<torch::nn::Linear>(4, 1)};
}

// Runs ranks like run_ranks_collect(), but they do not meet after `body`: an error ends their groups. No
// error comes from a timeout, which is longer than the ranks may live.
std::vector<std::string> ranks_until_an_error(int num_ranks,
                                              const std::function<std::string(comm::World&)>& body) {
  const auto outcomes = fork_ranks(num_ranks,
                                   [&](int) {
                                     comm::World world = comm::init_distributed();
                                     return body(world);
                                   },
                                   {.end_together = true});
  std::vector<std::string> values;
  for (const RankOutcome& outcome : outcomes) {
    values.push_back(outcome.value);
    for (const std::string& failure : outcome.failures) ADD_FAILURE() << failure;
  }
  return values;
}

TEST(PipelineErrors, LayersThatDoNotFitAreNamedWithTheirShapesOnAllRanks) {
  const auto outcomes = ranks_until_an_error(2, [](comm::World& world) {
    auto layers = linears();
    layers[3] = LayerSpec::of<torch::nn::Linear>(5, 1);
    const auto engine = initialize(two_stages(layers), {.config = plain_config()}).engine;
    const auto batches = rows(2, 4);
    const std::string error =
        world.rank() == 1
            ? error_of<c10::Error>([&] { engine->train_batch(pipe::DataIterator::over(batches)); })
            : error_of<CommError>([&] { engine->train_batch(pipe::DataIterator::over(batches)); });
    return error;
  });
  for (const std::string& error : outcomes) {
    EXPECT_NE(error.find("mat1 and mat2 shapes cannot be multiplied (2x4 and 5x1)"), std::string::npos)
        << error;
    EXPECT_NE(
        error.find("this was in layer 3 (torch::nn::LinearImpl) of stage 1 of 2, which was given [2, 4] "
                   "Float, what layer 2 (torch::nn::LinearImpl) gives"),
        std::string::npos)
        << error;
  }
  EXPECT_EQ(outcomes[0].find("Exception raised from"), std::string::npos) << outcomes[0];
}

struct OwnFailure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

at::Tensor fail(const at::Tensor&) { throw OwnFailure("no such file"); }

TEST(PipelineErrors, AnExceptionOfALayerOrOfTheLossSaysWhereItWas) {
  for (const bool is_in_loss : {false, true}) {
    const std::string place = is_in_loss ? "this was in loss_fn of the PipelineModule, which was given the "
                                           "outputs [2, 1] Float and the labels [2, 1] Float"
                                         : "this was in layer 2 (";
    const auto outcomes = ranks_until_an_error(2, [&](comm::World& world) {
      std::vector<LayerSpec> layers = linears();
      if (!is_in_loss) layers[2] = fail;
      const auto loss = [=](const at::Tensor& outputs, const at::Tensor& labels) {
        return is_in_loss ? fail(outputs) : squares(outputs, labels);
      };
      const auto module = std::make_shared<PipelineModule>(
          layers, PipelineModuleOptions{.num_stages = 2, .loss_fn = loss, .partition_method = "uniform"});
      const auto engine = initialize(module, {.config = plain_config()}).engine;
      const auto batches = rows(2, 4);
      const auto train = [&] { engine->train_batch(pipe::DataIterator::over(batches)); };
      if (world.rank() == 0) return error_of<CommError>(train);
      try {
        train();
      } catch (const Error& error) {
        EXPECT_THROW(std::rethrow_if_nested(error), OwnFailure);
        return std::string(error.what());
      }
      return std::string("no error");
    });
    for (const std::string& error : outcomes) {
      EXPECT_NE(error.find("no such file; " + place), std::string::npos) << error;
      EXPECT_TRUE(is_in_loss ||
                  error.find("of stage 1 of 2, which was given [2, 4] Float") != std::string::npos)
          << error;
    }
  }
}

// Throws in the second micro batch, in forward or backward, the first time it is armed.
struct FailingLayer : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) {
    const auto fail_once = [](const char* where) {
      if (std::string(armed) == where && ++calls == 2) {
        armed = "";
        throw OwnFailure("no memory");
      }
    };
    fail_once("forward");
    const at::Tensor y = x * 1;
    if (y.requires_grad()) y.register_hook([fail_once](const at::Tensor&) { fail_once("backward"); });
    return y;
  }
  static inline const char* armed = "";
  static inline int calls = 0;
};

TEST(PipelineErrors, ABatchThatFailedInItsMiddleLeavesNothingInTheNextOne) {
  run_ranks(1, [](comm::World&) {
    for (const int zero_stage : {0, 1}) {
      for (const char* where : {"forward", "backward"}) {
        Json config = plain_config(3);
        config["zero_optimization"] = {{"stage", zero_stage}};
        config["optimizer"] = {{"type", "SGD"}, {"params", {{"lr", 0.1}}}};
        config["zero_allow_untested_optimizer"] = true;
        const std::vector<LayerSpec> layers = {LayerSpec::of<torch::nn::Linear>(4, 4),
                                               LayerSpec::of<FailingLayer>(),
                                               LayerSpec::of<torch::nn::Linear>(4, 1)};
        const auto make = [&] {
          torch::manual_seed(3);
          return initialize(std::make_shared<PipelineModule>(
                                layers, PipelineModuleOptions{.num_stages = 1, .loss_fn = squares}),
                            {.config = config})
              .engine;
        };
        const auto batches = rows(3, 4);
        const auto engine = make(), expected = make();
        FailingLayer::calls = 0;
        FailingLayer::armed = where;
        EXPECT_THROW(engine->train_batch(pipe::DataIterator::over(batches)), std::exception);
        EXPECT_EQ(std::string(FailingLayer::armed), "") << "nothing failed";
        for (int step = 0; step < 3; ++step) {
          EXPECT_EQ(engine->train_batch(pipe::DataIterator::over(batches)).item<double>(),
                    expected->train_batch(pipe::DataIterator::over(batches)).item<double>())
              << where << " at stage " << zero_stage << ", step " << step;
        }
      }
    }
  });
}

TEST(PipelineErrors, AnErrorOfALayersConstructorNamesTheLayer) {
  run_ranks(1, [](comm::World&) {
    const std::vector<LayerSpec> layers = {LayerSpec::of<torch::nn::Linear>(4, 4),
                                           LayerSpec::of<torch::nn::Linear>(4, -1)};
    for (const char* method : {"uniform", "parameters"}) {
      const std::string text = error_of<c10::Error>([&] {
        PipelineModule(layers, PipelineModuleOptions{.num_stages = 1, .partition_method = method});
      });
      EXPECT_NE(text.find("this was in the constructor of layer 1 (torch::nn::LinearImpl)"),
                std::string::npos)
          << text;
    }
  });
}

TEST(PipelineErrors, DataThatEndsWithinABatchIsAnErrorOnAllRanks) {
  run_ranks(4, [](comm::World& world) {
    const auto engine = initialize(two_stages(linears()), {.config = plain_config(3)}).engine;
    const auto batches = rows(5, 4);
    const auto data = pipe::DataIterator::over(batches);
    engine->train_batch(data);
    try {
      engine->train_batch(data);
      ADD_FAILURE() << "no error on rank " << world.rank();
    } catch (const pipe::EndOfData& end) {
      EXPECT_EQ(end.num_read(), 2);
      EXPECT_NE(std::string(end.what()).find("ended after 2 of the 3 micro batches"), std::string::npos)
          << end.what();
    }
    const auto more = rows(3, 4);
    engine->train_batch(pipe::DataIterator::over(more));  // the engine continues
    EXPECT_EQ(engine->global_steps(), 2);
    EXPECT_TRUE(throws_error<UsageError>([&] { engine->train_batch(); }, {"set_dataiterator"}));
  });
}

TEST(PipelineErrors, ShapesMayChangeFromBatchToBatch) {
  run_ranks(2, [](comm::World&) {
    std::vector<LayerSpec> layers = {LayerSpec::of<torch::nn::Linear>(4, 4),
                                     LayerSpec::of<torch::nn::Linear>(4, 1)};
    const auto engine = initialize(two_stages(layers), {.config = plain_config()}).engine;
    for (const int64_t rows_of : {2, 3, 2, 5}) {
      std::vector<pipe::MicroBatch> batches(2, {{at::ones({rows_of, 4})}, {at::zeros({rows_of, 1})}});
      batches[1].inputs[0] = at::ones({rows_of + 1, 4});
      batches[1].labels[0] = at::zeros({rows_of + 1, 1});
      EXPECT_GT(engine->train_batch(pipe::DataIterator::over(batches)).item<double>(), 0);
    }
  });
}

TEST(PipelineErrors, OutputsOfAnotherShapeForEqualInputsNeedAWord) {
  for (const bool is_dynamic : {false, true}) {
    ranks_until_an_error(2, [is_dynamic](comm::World& world) {
      const auto calls = std::make_shared<int>(0);
      const auto cut = [calls](const at::Tensor& hidden) { return hidden.slice(0, 0, 1 + (*calls)++ % 2); };
      std::vector<LayerSpec> layers = {LayerSpec::of<torch::nn::Linear>(4, 4), cut,
                                       LayerSpec::of<torch::nn::Linear>(4, 1), torch::nn::Identity()};
      const auto module = std::make_shared<PipelineModule>(
          layers, PipelineModuleOptions{
                      .num_stages = 2,
                      .loss_fn = [](const at::Tensor& out, const at::Tensor&) { return out.mean(); },
                      .partition_method = "uniform",
                      .dynamic_shape = is_dynamic});
      const auto engine = initialize(module, {.config = plain_config()}).engine;
      const auto batches = rows(2, 4);
      const auto train = [&] { engine->train_batch(pipe::DataIterator::over(batches)); };
      if (is_dynamic) {
        train();
      } else if (world.rank() == 0) {
        EXPECT_TRUE(throws_error<UsageError>(train, {"[2, 4] Float", "[1, 4] Float", "dynamic_shape"}));
      } else {
        EXPECT_TRUE(throws_error<CommError>(train, {"stage 0 of 2", "dynamic_shape"}));
      }
      return std::string();
    });
  }
}

/// Ends the process in its second update, if told to, and changes no weight.
class KillingOptimizer : public optim::OptimizerWithStates {
 public:
  KillingOptimizer(std::vector<optim::ParamGroup> groups, bool kills)
      : OptimizerWithStates(std::move(groups), {"nothing"}), kills_(kills) {}
  std::string name() const override { return "KillingOptimizer"; }
  bool is_elementwise() const override { return true; }
  void step(const optim::FlatSlice& slice, double) override {
    if (++states_.of(slice).step == 2 && kills_) std::raise(SIGKILL);
  }

 private:
  bool kills_;
};

TEST(PipelineErrors, AKilledStageEndsTheOthersLongBeforeATimeout) {
  enum class Moment { kForward, kBackward, kStep };
  for (const int victim : {0, 1, 2}) {
    for (const Moment moment : {Moment::kForward, Moment::kBackward, Moment::kStep}) {
      const auto outcomes = fork_ranks(3, [=](int rank) -> std::string {
        comm::init_distributed();
        const auto explode = [=](const at::Tensor& hidden) {
          static int calls = 0;
          const bool is_time = rank == victim && ++calls > 4;
          if (is_time && moment == Moment::kForward) std::raise(SIGKILL);
          at::Tensor copy = hidden * 1;
          if (is_time && moment == Moment::kBackward && copy.requires_grad())
            copy.register_hook([](const at::Tensor&) { std::raise(SIGKILL); });
          return copy;
        };
        std::vector<LayerSpec> layers;
        for (int i = 0; i < 3; ++i) {
          layers.push_back(LayerSpec::of<torch::nn::Linear>(4, i == 2 ? 1 : 4));
          layers.push_back(explode);
        }
        const auto module = std::make_shared<PipelineModule>(
            layers,
            PipelineModuleOptions{.num_stages = 3, .loss_fn = squares, .partition_method = "uniform"});
        const bool kills_in_step = rank == victim && moment == Moment::kStep;
        const auto make_optimizer = [=](std::vector<optim::ParamGroup> groups) {
          return std::make_unique<KillingOptimizer>(std::move(groups), kills_in_step);
        };
        Json config = plain_config(4);
        config.erase("optimizer");
        config.update({{"gradient_clipping", 1.0},
                       {"zero_allow_untested_optimizer", true},
                       {"zero_optimization", {{"stage", 1}}}});
        const auto engine = initialize(module, {.config = config, .slice_optimizer = make_optimizer}).engine;
        const auto batches = rows(4, 4);
        return error_of<CommError>([&] {
          for (int step = 0; step < 10; ++step) engine->train_batch(pipe::DataIterator::over(batches));
        });
      });
      for (int rank = 0; rank < 3; ++rank) {
        if (rank == victim) {
          EXPECT_EQ(outcomes[size_t(rank)].signal, SIGKILL);
          continue;
        }
        const std::string& text = outcomes[size_t(rank)].value;
        const std::regex names_it(message("no sign of life from ranks? ([0-9], )*", victim));
        EXPECT_TRUE(std::regex_search(text, names_it)) << "rank " << rank << ": " << text;
        EXPECT_NE(text.find("of this pipeline rank 0 is stage 0"), std::string::npos) << text;
      }
    }
  }
}

TEST(PipelineErrors, AStageThatCallsSomethingElseIsNamed) {
  const auto outcomes = ranks_until_an_error(2, [](comm::World& world) {
    const auto engine = initialize(two_stages(linears()), {.config = plain_config()}).engine;
    const auto batches = rows(4, 4);
    const auto data = pipe::DataIterator::over(batches);
    engine->train_batch(data);
    const std::string error = error_of<CommError>([&] {
      if (world.rank() == 0) {
        engine->train_batch(data);
      } else {
        engine->eval_batch(data, {.num_micro_batches = 1});
      }
    });
    return error;
  });
  for (const std::string& error : outcomes) {
    EXPECT_NE(error.find("diverged"), std::string::npos) << error;
    EXPECT_NE(error.find("of this pipeline rank 0 is stage 0, rank 1 stage 1"), std::string::npos) << error;
  }
}

TEST(PipelineErrors, ModulesThatCannotBeCutSayWhatToChange) {
  run_ranks(2, [](comm::World&) {
    const auto refuses = [](std::vector<LayerSpec> layers, PipelineModuleOptions options,
                            const std::vector<std::string>& texts) {
      EXPECT_TRUE(throws_error<UsageError>([&] { PipelineModule(layers, options); }, texts));
    };
    refuses(linears(), {}, {"must provide num_stages or topology"});
    refuses(linears(), {.num_stages = 3}, {"num_stages is 3", "2 ranks"});
    refuses({LayerSpec::of<torch::nn::Linear>(4, 1)}, {.num_stages = 2}, {"partition_method", "1 layers"});
    refuses(linears(), {.topology = PipeDataParallelTopology(2, 2)}, {"topology has 4 ranks, expected 2"});
    refuses({TiedLayerSpec::of<torch::nn::Linear>("one", 4, 4), LayerSpec::of<torch::nn::Linear>(4, 1)},
            {.num_stages = 2}, {"the tied key 'one' is that of layer 0", "two or more"});
    refuses({TiedLayerSpec::of<torch::nn::Linear>("one", 4, 4).tied_weight_attr({"weights"}),
             TiedLayerSpec::of<torch::nn::Linear>("one", 4, 4)},
            {.num_stages = 2}, {"tied_weight_attr of the key 'one'", "has no parameter 'weights'"});
    refuses(linears(), {.num_stages = 2, .partition_method = "profile"}, {"profile_inputs"});
    refuses(linears(), {.num_stages = 2, .partition_method = "type:conv"},
            {"partition_method", "matches no layer"});
  });
}

TEST(PipelineErrors, LayersThatDifferBetweenRanksAreNamed) {
  run_ranks(2, [](comm::World& world) {
    std::vector<LayerSpec> layers = linears();
    if (world.rank() == 1) layers.push_back(LayerSpec::of<torch::nn::ReLU>());
    const std::string error =
        error_of<UsageError>([&] { initialize(two_stages(layers), {.config = plain_config()}); });
    EXPECT_NE(error.find("rank 0 has "), std::string::npos) << error;
    EXPECT_NE(error.find("rank 1 has layer "), std::string::npos) << error;
    EXPECT_NE(error.find("give all ranks the same layers, num_stages or topology, and partition_method"),
              std::string::npos)
        << error;
  });
}

TEST(PipelineErrors, NumbersOfStagesThatDifferBetweenRanksAreNamed) {
  run_ranks(2, [](comm::World& world) {
    const int num_stages = world.rank() == 0 ? 2 : 1;
    const std::string error = error_of<UsageError>([&] {
      initialize(std::make_shared<PipelineModule>(linears(), PipelineModuleOptions{.num_stages = num_stages}),
                 {.config = plain_config()});
    });
    EXPECT_NE(error.find("rank 0 has a topology of pipe 2, data 1, rank 1 has a topology of pipe 1, data 2"),
              std::string::npos)
        << error;
    EXPECT_TRUE(throws_error<UsageError>(
        [&] { PipelineParallelGrid(PipeDataParallelTopology(num_stages, 2 / num_stages)); },
        {"topologies of the PipelineParallelGrid differ", "pipe 2, data 1", "pipe 1, data 2"}));
  });
}

TEST(PipelineErrors, ConfigsThatDoNotFitAPipelineNameTheKey) {
  run_ranks(2, [](comm::World&) {
    const auto refuses = [](const char* key, Json value, const char* text) {
      Json config = plain_config();
      config[key] = std::move(value);
      const std::string error =
          error_of<Error>([&] { initialize(two_stages(linears()), {.config = config}); });
      EXPECT_NE(error.find(text), std::string::npos) << error;
    };
    refuses("zero_optimization", {{"stage", 3}}, "zero_optimization.stage 3 does not fit a pipeline");
    refuses("pipeline", {{"schedule", "interleaved"}, {"model_chunks", 2}}, "pipeline.model_chunks is 2");
    refuses("pipeline", {{"stages", 4}}, "pipeline.stages is 4");
    refuses("pipeline", {{"partition", "parameters"}}, "pipeline.partition is \"parameters\"");
    refuses("pipeline", {{"seed_layers", true}}, "pipeline.seed_layers is true");
    EXPECT_TRUE(throws_error<UsageError>(
        [] { initialize(std::shared_ptr<PipelineModule>(), {.config = plain_config()}); },
        {"the model is null"}));
    refuses("managed_gradient_accumulation", false, "managed_gradient_accumulation");
    refuses("progressive_layer_drop", {{"enabled", true}}, "progressive_layer_drop");
    refuses("optimizer", {{"type", "OneBitAdam"}, {"params", {{"lr", 0.1}}}}, "optimizer.type is OnebitAdam");
    // A stage whose layers have nothing to train.
    std::vector<LayerSpec> layers = {LayerSpec::of<torch::nn::Linear>(4, 1), torch::nn::Identity()};
    EXPECT_TRUE(throws_error<UsageError>([&] { initialize(two_stages(layers), {.config = plain_config()}); },
                                         {"stage 1 of 2", "has no parameter that is trained"}));
  });
}

TEST(PipelineErrors, CallsOfTheOtherEngineAreRefused) {
  run_ranks(2, [](comm::World&) {
    const auto engine = initialize(two_stages(linears()), {.config = plain_config()}).engine;
    const at::Tensor tensor = at::ones({1});
    constexpr const char* kText = "Only train_batch() is accessible in pipeline mode.";
    EXPECT_TRUE(throws_error<PipelineError>([&] { engine->forward(tensor); }, {kText}));
    EXPECT_TRUE(throws_error<PipelineError>([&] { engine->backward(tensor); }, {kText}));
    EXPECT_TRUE(throws_error<PipelineError>([&] { engine->step(); }, {kText}));
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(
        throws_error<UsageError>([&] { engine->train_batch(); },
                                 {"train_batch() requires gradients enabled. Use eval_batch() instead."}));
  });
}

}  // namespace
}  // namespace deepspeed::testing
