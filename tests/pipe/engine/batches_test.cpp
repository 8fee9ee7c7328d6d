// Tests the inputs and results of train_batch() and eval_batch().
#include <torch/data/example.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/log.h"
#include "deepspeed/deepspeed.h"
#include "deepspeed/pipe.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kRow = 4;

at::Tensor filled(double value, at::IntArrayRef sizes) { return at::full(sizes, value, at::kFloat); }

std::vector<pipe::MicroBatch> numbered(int count, int first = 0) {
  std::vector<pipe::MicroBatch> batches;
  for (int i = first; i < first + count; ++i)
    batches.push_back({{filled(0.1 * (i + 1), {2, kRow})}, {filled(0.2 * i, {2, 1})}});
  return batches;
}

at::Tensor mean_square(const at::Tensor& outputs, const at::Tensor& labels) {
  return (outputs - labels).square().mean();
}

std::vector<LayerSpec> four_linears() {
  std::vector<LayerSpec> layers(3, LayerSpec::of<torch::nn::Linear>(kRow, kRow));
  layers.push_back(LayerSpec::of<torch::nn::Linear>(kRow, 1));
  return layers;
}

PipelineModuleOptions two_stages() {
  return {.num_stages = 2, .loss_fn = mean_square, .seed_layers = true, .partition_method = "uniform"};
}

Json config_of(int micro_batches, double rate = 0.1) {
  return {{"train_micro_batch_size_per_gpu", 2},
          {"gradient_accumulation_steps", micro_batches},
          {"optimizer", {{"type", "SGD"}, {"params", {{"lr", rate}}}}}};
}

std::shared_ptr<PipelineEngine> make_engine(int micro_batches, PipelineModuleOptions options = two_stages()) {
  return initialize(std::make_shared<PipelineModule>(four_linears(), std::move(options)),
                    {.config = config_of(micro_batches)})
      .engine;
}

// Holds the layers of both stages in this process, with their initial weights.
struct Whole {
  Whole() {
    for (int64_t i = 0; i < 4; ++i) {
      manual_seed(uint64_t(1234 + i));
      layers.emplace_back(kRow, i == 3 ? 1 : kRow);
    }
  }
  at::Tensor output(at::Tensor x) {
    for (auto& layer : layers) x = layer(x);
    return x.detach();
  }
  double loss(const pipe::MicroBatch& batch) {
    return mean_square(output(batch.inputs[0]), batch.labels[0]).item<double>();
  }
  std::vector<torch::nn::Linear> layers;
};

TEST(PipelineEngine, EvaluatesMicroBatchesInEachForm) {
  run_ranks(2, [](comm::World&) {
    const auto engine = make_engine(2);
    Whole whole;
    const auto batches = numbered(3);
    std::vector<double> losses;
    for (const auto& batch : batches) losses.push_back(whole.loss(batch));
    const double two = (losses[0] + losses[1]) / 2, three = (two * 2 + losses[2]) / 3;
    const bool is_last = engine->is_last_stage();
    const auto evaluate = [&](const EvalBatchOptions& options) {
      return engine->eval_batch(pipe::DataIterator::over(batches), options);
    };

    EXPECT_NEAR(evaluate({}).loss.item<double>(), two, 1e-6);
    EXPECT_NEAR(evaluate({.num_micro_batches = 3}).loss.item<double>(), three, 1e-6);
    const auto own = evaluate({.bcast_loss = false});
    EXPECT_EQ(own.loss.defined(), is_last);
    if (is_last) {
      EXPECT_NEAR(own.loss.item<double>(), two, 1e-6);
    }
    const auto each = evaluate({.reduce_output = std::nullopt});
    EXPECT_EQ(each.losses.size(), is_last ? 2U : 0U);
    for (size_t i = 0; i < each.losses.size(); ++i)
      EXPECT_NEAR(each.losses[i].item<double>(), losses[i], 1e-6);
    for (const bool computes : {true, false}) {
      const auto with_outputs = evaluate({.return_logits = true, .compute_loss = computes});
      EXPECT_EQ(with_outputs.loss.defined(), computes);
      ASSERT_EQ(with_outputs.outputs.size(), is_last ? 2U : 0U);
      for (size_t i = 0; i < with_outputs.outputs.size(); ++i) {
        EXPECT_TRUE(with_outputs.outputs[i][0].allclose(whole.output(batches[i].inputs[0])));
        EXPECT_FALSE(with_outputs.outputs[i][0].requires_grad());
      }
    }
    EXPECT_ERROR(NotSupportedError, evaluate({.reduce_output = "max"}), "reduce_output is \"max\"");
    EXPECT_ERROR(UsageError, evaluate({.num_micro_batches = 0}), "num_micro_batches is 0");
    EXPECT_EQ(engine->global_steps(), 0);
    // Evaluation leaves training unchanged.
    EXPECT_NEAR(engine->train_batch(pipe::DataIterator::over(batches)).item<double>(), two, 1e-6);
  });
}

TEST(PipelineEngine, ReadsWhatItIsGivenAgainAndAgain) {
  run_ranks(2, [](comm::World&) {
    std::vector<double> seen;
    auto options = two_stages();
    options.loss_fn = [&](const at::Tensor& outputs, const at::Tensor& labels) {
      seen.push_back(std::round(10 * labels[0].item<double>()) / 10);
      return mean_square(outputs, labels);
    };
    const auto engine = make_engine(2, options);
    const bool is_last = engine->is_last_stage();
    const auto loader = std::make_shared<std::vector<pipe::MicroBatch>>(numbered(3));
    engine->set_dataloader(loader);
    engine->train_batch();
    engine->train_batch();
    if (is_last) {
      EXPECT_THAT(seen, ElementsAre(0.0, 0.2, 0.4, 0.0));
    }

    // An iterator replaces the loader and ends; a batch_fn changes its batches.
    seen.clear();
    const auto four = numbered(4);
    engine->set_dataiterator(pipe::DataIterator::over(four));
    engine->set_batch_fn([](pipe::MicroBatch batch) {
      batch.labels[0] = batch.labels[0] + 1;
      return batch;
    });
    engine->train_batch();
    engine->train_batch();
    if (is_last) {
      EXPECT_THAT(seen, ElementsAre(1.0, 1.2, 1.4, 1.6));
    }
    EXPECT_ERROR(pipe::EndOfData, engine->train_batch(), "ended after 0 of the 2 micro batches");
    EXPECT_EQ(engine->global_steps(), 4);
  });
}

// Batches of two parts with any names; tests/mistakes has those of three.
struct DataAndTarget {
  at::Tensor data, target;
};
struct TargetAndData {
  at::Tensor target, data;
};
struct FirstAndSecond {
  at::Tensor first;
  std::vector<at::Tensor> second;
};
struct Renamed : torch::data::Example<> {
  using torch::data::Example<>::Example;
};

// Is a data set with samples of a struct type.
template <class Sample>
struct Samples {
  Sample get(size_t index) const { return {filled(0.1 * double(index + 1), {kRow}), filled(0, {1})}; }
  size_t size() const { return 2; }
};

TEST(PipelineEngine, TakesBatchesOfPairsTuplesExamplesAndLists) {
  run_ranks(2, [](comm::World&) {
    const auto engine = make_engine(1);
    const at::Tensor x = filled(0.5, {2, kRow}), y = filled(0.0, {2, 1});
    const double expected = engine->eval_batch([&] { return std::pair(x, y); }).loss.item<double>();
    const auto expect_loss = [&](const pipe::DataIterator& data) {
      EXPECT_EQ(engine->eval_batch(data).loss.item<double>(), expected);
    };
    expect_loss([&] { return std::tuple(x, std::vector<at::Tensor>{y}); });
    expect_loss([&] { return torch::data::Example<>(x, y); });
    expect_loss([&] { return Renamed(x, y); });
    expect_loss([&] { return DataAndTarget{x, y}; });
    expect_loss([&] { return TargetAndData{y, x}; });
    expect_loss([&] { return FirstAndSecond{x, {y}}; });
    expect_loss([&] { return std::optional(pipe::MicroBatch{{x}, {y}}); });
    // A stage in between, or one that reads no data, may get none.
    expect_loss(engine->is_first_stage() || engine->is_last_stage()
                    ? pipe::DataIterator([&] { return std::pair(x, y); })
                    : pipe::DataIterator(nullptr));
  });
}

TEST(PipelineEngine, ReadsDataSetsOfStructs) {
  run_ranks(2, [](comm::World&) {
    const auto trained_on = [](auto samples) {
      const auto engine = initialize(std::make_shared<PipelineModule>(four_linears(), two_stages()), samples,
                                     {.config = config_of(1)})
                              .engine;
      return engine->train_batch().template item<double>();
    };
    Whole whole;
    const at::Tensor x = at::stack({filled(0.1, {kRow}), filled(0.2, {kRow})});
    const double expected = whole.loss({{x}, {filled(0, {2, 1})}});
    EXPECT_NEAR(trained_on(Samples<DataAndTarget>()), expected, 1e-6);
    EXPECT_NEAR(trained_on(Samples<std::pair<at::Tensor, at::Tensor>>()), expected, 1e-6);
  });
}

TEST(PipelineEngine, CastsItsInputsWhereFp16AsksForIt) {
  run_ranks(2, [](comm::World&) {
    for (const char* schedule : {"1f1b", "zero_bubble"}) {
      Json config = config_of(2);
      config["pipeline"] = {{"schedule", schedule}};
      config["fp16"] = {{"enabled", true}, {"auto_cast", true}, {"loss_scale", 1}};
      auto options = two_stages();
      options.loss_fn = [](const at::Tensor& outputs, const at::Tensor& labels) {
        EXPECT_EQ(outputs.scalar_type(), at::kHalf);
        return mean_square(outputs.to(at::kFloat), labels);
      };
      const auto engine =
          initialize(std::make_shared<PipelineModule>(four_linears(), options), {.config = config}).engine;
      const auto batches = numbered(2);
      Whole whole;
      const double expected = (whole.loss(batches[0]) + whole.loss(batches[1])) / 2;
      EXPECT_NEAR(engine->train_batch(pipe::DataIterator::over(batches)).item<double>(), expected, 1e-2);
      EXPECT_EQ(engine->skipped_steps(), 0);
    }
  });
}

struct DoubleImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x + weight; }
  at::Tensor weight = register_parameter("weight", at::zeros({1}, at::kDouble));
};
TORCH_MODULE(Double);

constexpr double kFp64Loss = 1 + 1e-12;  // 1 in fp32

TEST(PipelineEngine, GivesTheLossOfAModelInFp64UnroundedOnAllStages) {
  run_ranks(4, [](comm::World&) {
    auto options = two_stages();
    options.loss_fn = [](const at::Tensor& output, const at::Tensor& label) {
      return (output * label).mean();
    };
    options.additional_losses = [] {
      return std::map<std::string, at::Tensor>{{"extra", at::full({}, kFp64Loss, at::kDouble)}};
    };
    std::vector<LayerSpec> layers(2, LayerSpec::of<Double>());
    const auto engine =
        initialize(std::make_shared<PipelineModule>(layers, options), {.config = config_of(2, /*rate=*/0.0)})
            .engine;
    const auto data = [] {
      return std::pair(at::ones({2, 1}, at::kDouble), at::full({2, 1}, kFp64Loss, at::kDouble));
    };
    const auto expect_loss = [](const at::Tensor& loss) {
      EXPECT_EQ(loss.scalar_type(), at::kDouble);
      EXPECT_EQ(loss.item<double>(), kFp64Loss);
    };
    expect_loss(engine->train_batch(data));
    expect_loss(engine->get_additional_losses()->at("extra"));
    expect_loss(engine->eval_batch(data).loss);
    const at::Tensor own = engine->eval_batch(data, {.bcast_loss = false}).loss;
    if (engine->is_last_stage()) expect_loss(own);
  });
}

TEST(PipelineEngine, WarnsOfNoGradientThatIsMissingInAChunkWithoutParameters) {
  run_ranks(2, [](comm::World&) {
    auto options = two_stages();
    options.model_chunks = 2;
    const auto twice = [](const at::Tensor& x) { return x * 2; };
    const std::vector<LayerSpec> layers = {LayerSpec::of<torch::nn::Linear>(kRow, kRow),
                                           LayerSpec::of<torch::nn::Linear>(kRow, kRow), twice,
                                           LayerSpec::of<torch::nn::Linear>(kRow, 1)};
    Json config = config_of(2);
    config["pipeline"] = {{"schedule", "interleaved"}, {"model_chunks", 2}};
    const auto engine =
        initialize(std::make_shared<PipelineModule>(layers, options), {.config = config}).engine;
    std::string lines;
    const auto before = log::set_sink([&](log::Level, const std::string& text) { lines += text + "\n"; });
    const auto batches = numbered(2);
    engine->train_batch(pipe::DataIterator::over(batches));
    log::set_sink(before);
    EXPECT_THAT(lines, Not(HasSubstr("gave no parameter of the engine a gradient")));
  });
}

TEST(PipelineEngine, GivesTheMeansOfAdditionalLossesOnAllStages) {
  run_ranks(4, [](comm::World&) {
    auto options = two_stages();
    const auto calls = std::make_shared<int>(0);
    options.additional_losses = [calls] {
      return std::map<std::string, at::Tensor>{{"count", filled((*calls)++, {})}, {"two", filled(2, {})}};
    };
    const auto engine = make_engine(3, options);
    EXPECT_FALSE(engine->get_additional_losses());
    for (const double mean : {1.0, 4.0}) {
      const auto batches = numbered(3);
      engine->train_batch(pipe::DataIterator::over(batches));
      const auto& losses = *engine->get_additional_losses();
      EXPECT_NEAR(losses.at("count").item<double>(), mean, 1e-6);
      EXPECT_NEAR(losses.at("two").item<double>(), 2, 1e-6);
    }
    const auto plain = make_engine(1);
    const auto batches = numbered(1);
    plain->train_batch(pipe::DataIterator::over(batches));
    EXPECT_FALSE(plain->get_additional_losses());
  });
}

// Holds hidden values, a mask of them, and a count of its uses.
struct Masked {
  at::Tensor hidden;
  at::Tensor mask;
  at::Tensor count;
};

struct ScaleImpl : torch::nn::Module {
  Masked forward(const Masked& values) { return {inner(values.hidden), values.mask, values.count}; }
  torch::nn::Linear inner = register_module("inner", torch::nn::Linear(kRow, kRow));
};
TORCH_MODULE(Scale);

struct HeadImpl : torch::nn::Module {
  at::Tensor forward(const Masked& values) {
    EXPECT_TRUE(values.count.equal(at::full({2}, 2, at::kInt)));
    return inner(values.hidden);
  }
  torch::nn::Linear inner = register_module("inner", torch::nn::Linear(kRow, 1));
};
TORCH_MODULE(Head);

TEST(PipelineEngine, SendsMasksAndIntegersFromStageToStage) {
  run_ranks(3, [](comm::World&) {
    const auto begin = [](const at::Tensor& hidden) {
      return Masked{hidden, at::arange(kRow).remainder(2) == 1, at::zeros({2}, at::kInt)};
    };
    const auto use = [](const Masked& values) {
      EXPECT_EQ(values.mask.scalar_type(), at::kBool);
      EXPECT_EQ(values.count.scalar_type(), at::kInt);
      return Masked{values.hidden.masked_fill(values.mask, 0.0), values.mask, values.count + 1};
    };
    const std::vector<LayerSpec> layers = {LayerSpec::of<torch::nn::Linear>(kRow, kRow),
                                           begin,
                                           LayerSpec::of<Scale>(),
                                           use,
                                           use,
                                           LayerSpec::of<Head>()};
    auto options = two_stages();
    options.num_stages = 3;
    const auto engine =
        initialize(std::make_shared<PipelineModule>(layers, options), {.config = config_of(4)}).engine;
    engine->set_has_attention_mask(true);
    EXPECT_TRUE(engine->has_attention_mask());
    const auto batches = numbered(4);
    const double first = engine->train_batch(pipe::DataIterator::over(batches)).item<double>();
    engine->reset_activation_shape();
    double loss = 0;
    for (int step = 0; step < 5; ++step)
      loss = engine->train_batch(pipe::DataIterator::over(batches)).item<double>();
    EXPECT_LT(loss, first);
  });
}

TEST(PipelineEngine, KnowsItsPlaceAndItsStagesWeights) {
  run_ranks(4, [](comm::World& world) {
    const auto engine = make_engine(2);
    const int stage = world.rank() / 2;
    EXPECT_EQ(engine->stage_id(), stage);
    EXPECT_EQ(engine->get_pipeline_parallel_rank(), stage);
    EXPECT_EQ(engine->num_stages(), 2);
    EXPECT_TRUE(engine->is_pipe_parallel());
    EXPECT_EQ(engine->is_first_stage(), stage == 0);
    EXPECT_EQ(engine->is_last_stage(), stage == 1);
    EXPECT_EQ(engine->dp_world_size(), 2);
    EXPECT_EQ(engine->get_data_parallel_rank(), world.rank() % 2);
    EXPECT_FALSE(engine->is_gradient_accumulation_boundary());
    EXPECT_EQ(std::get<0>(engine->get_batch_info()), 2 * 2 * 2);

    const auto state = engine->module_state_dict();
    ASSERT_EQ(state.size(), 4U);
    EXPECT_EQ(state[0].name, stage == 0 ? "0.weight" : "2.weight");
    std::vector<NamedTensor> zeros;
    for (const NamedTensor& tensor : state) zeros.push_back({tensor.name, at::zeros_like(tensor.tensor)});
    engine->load_module_state_dict(zeros);
    const auto batches = numbered(2);
    // Without weights the outputs are zeros.
    const double expected = (0 + 0.2 * 0.2) / 2;
    EXPECT_NEAR(engine->eval_batch(pipe::DataIterator::over(batches)).loss.item<double>(), expected, 1e-6);
    zeros[0].name = "9.weight";
    EXPECT_ERROR(UsageError, engine->load_module_state_dict(zeros), "9.weight");
  });
}

TEST(PipelineEngine, ChangesTheNumberOfMicroBatches) {
  run_ranks(2, [](comm::World&) {
    const auto engine = make_engine(2);
    Whole whole;
    const auto batches = numbered(5);
    engine->set_train_batch_size(2 * 5);
    EXPECT_EQ(engine->config().gradient_accumulation_steps, 5);
    double sum = 0;
    for (const auto& batch : batches) sum += whole.loss(batch);
    EXPECT_NEAR(engine->train_batch(pipe::DataIterator::over(batches)).item<double>(), sum / 5, 1e-6);
  });
}

TEST(PipelineEngine, TellsBubbleAndActivationsOfItsSchedule) {
  run_ranks(2, [](comm::World& world) {
    for (const auto& [schedule, line] : std::map<std::string, std::string>{
             {"1f1b",
              "2 stages x 1 data-parallel ranks, 4 micro batches, schedule 1f1b: bubble 25 % of the "
              "computation of equal stages; activations kept at most by stage: 2, 1 micro batches"},
             {"zero_bubble",
              "schedule zero_bubble: bubble 8.3 % of the computation of equal stages; "
              "activations kept at most by stage: 2, 2 micro batches"}}) {
      std::string lines;
      const log::Level level = log::level();
      log::set_level(log::Level::kInfo);
      const auto before = log::set_sink([&](log::Level, const std::string& text) { lines += text + "\n"; });
      Json config = config_of(4);
      config["pipeline"] = {{"schedule", schedule}};
      initialize(std::make_shared<PipelineModule>(four_linears(), two_stages()), {.config = config});
      log::set_sink(before);
      log::set_level(level);
      if (world.rank() == 0) {
        EXPECT_THAT(lines, HasSubstr(line));
      }
    }
  });
}

}  // namespace
}  // namespace deepspeed::testing
