// The Trainer's order of calls, periods, averages and checkpoints.
#include "deepspeed/trial/trainer/trainer.h"

#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/initialize.h"
#include "deepspeed/pipe.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::trial {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Points {
  int64_t count;
  size_t size() const { return static_cast<size_t>(count); }
  std::pair<at::Tensor, at::Tensor> get(size_t index) const {
    const at::Tensor x = at::full({1}, static_cast<double>(index), at::kFloat);
    return {x, x * 2.0};
  }
};

Json config_of(int64_t micro_batch, int64_t steps, int ranks) {
  return {{"train_micro_batch_size_per_gpu", micro_batch},
          {"gradient_accumulation_steps", steps},
          {"train_batch_size", micro_batch * steps * ranks},
          {"optimizer", {{"type", "SGD"}, {"params", {{"lr", 0.001}}}}}};
}

/// Writes down what the trainer calls.
struct Calls : Callback, Reporter {
  std::vector<std::string> names;
  std::map<int64_t, Json> validations;

  void on_trial_startup(int64_t first, const std::string&) override {
    names.push_back("startup " + std::to_string(first));
  }
  void on_trial_shutdown() override { names.push_back("shutdown"); }
  void on_training_epoch_start(int64_t) override { names.push_back("epoch"); }
  void on_training_epoch_end(int64_t epoch) override {
    names.push_back("epoch end " + std::to_string(epoch));
  }
  void on_training_workload_end(const Json&, const Json& batches) override {
    names.push_back("workload " + std::to_string(batches.size()));
  }
  void on_validation_end(const Json&) override { names.push_back("validation"); }
  void on_checkpoint_write_end(const std::filesystem::path& folder) override {
    names.push_back(folder.filename().string());
  }
  void report_validation_metrics(int64_t batches, const Json& metrics) override {
    validations[batches] = metrics;
  }
  bool should_preempt() override { return preempts; }
  bool preempts = false;
};

class LinearTrial : public DeepSpeedTrial {
 public:
  LinearTrial(DeepSpeedTrialContext& context, int64_t steps, std::shared_ptr<Calls> calls)
      : context_(context), calls_(std::move(calls)) {
    manual_seed(1);
    const auto module = torch::nn::Linear(1, 1);
    const auto config = config_of(2, steps, context.distributed().size());
    engine_ = context.wrap_model_engine(initialize(module, {.config = config}).engine);
  }

  Metrics train_batch(const DataIterator& data, int64_t, int64_t batch_idx) override {
    const MicroBatch batch = context_.to_device(*data.next());
    const at::Tensor loss = (engine_->forward(batch.inputs[0]) - batch.labels[0]).pow(2).mean();
    engine_->backward(loss);
    engine_->step();
    for (int64_t i = 0; i < batch.inputs[0].size(0); ++i) seen.push_back(batch.inputs[0][i].item<double>());
    batch_indices.push_back(batch_idx);
    return {{"loss", loss}, {"first", batch.inputs[0][0].item<double>()}};
  }
  std::shared_ptr<DataLoader> build_training_data_loader() override {
    return make_data_loader(Points{training}, {.batch_size = 2});
  }
  std::shared_ptr<DataLoader> build_validation_data_loader() override {
    return make_data_loader(Points{validation}, {.batch_size = 2});
  }
  Metrics evaluate_batch(const DataIterator& data, int64_t batch_idx) override {
    const MicroBatch batch = *data.next();
    if (changes_names && batch_idx == 1) return {{"other", 1.0}};
    return {{"mean", batch.inputs[0].mean()}, {"count", double(batch.inputs[0].size(0))}};
  }
  Reducers evaluation_reducer() override {
    return std::map<std::string, Reducer>{{"mean", Reducer::kAvg}, {"count", Reducer::kSum}};
  }
  std::map<std::string, std::shared_ptr<Callback>> build_callbacks() override { return {{"calls", calls_}}; }

  int64_t training = 12, validation = 6;
  bool changes_names = false;
  std::vector<double> seen;
  std::vector<int64_t> batch_indices;
  std::shared_ptr<DeepSpeedEngine<torch::nn::LinearImpl>> engine_;

 private:
  DeepSpeedTrialContext& context_;
  std::shared_ptr<Calls> calls_;
};

/// Runs a trial on one rank and returns what was called.
std::shared_ptr<Calls> run(const FitOptions& options, int64_t steps = 1) {
  const auto calls = std::make_shared<Calls>();
  DeepSpeedTrialContext context;
  LinearTrial trial(context, steps, calls);
  Trainer(trial, context, calls).fit(options);
  return calls;
}

TEST(Trainer, ValidatesAndSavesByPeriodsAndAtTheEnd) {
  testing::run_ranks(1, [](comm::World&) {
    const testing::TemporaryFolder folder;
    const auto calls = run({.max_length = Epoch(2),
                            .validation_period = Epoch(1),
                            .checkpoint_policy = "none",
                            .checkpoint_dir = folder.string()});
    EXPECT_THAT(calls->names,
                ElementsAre("startup 0", "epoch", "epoch end 0", "workload 6", "validation", "epoch",
                            "epoch end 1", "workload 6", "validation", "batch12", "shutdown"));
    EXPECT_EQ(calls->validations.at(6)["mean"], 2.5);
    EXPECT_EQ(calls->validations.at(6)["count"], 6.0);
    EXPECT_EQ(calls->validations.at(12)["epochs"], 2);
  });
}

TEST(Trainer, CallsTrainBatchOnceAMicroBatch) {
  testing::run_ranks(1, [](comm::World&) {
    const testing::TemporaryFolder folder;
    const auto calls = std::make_shared<Calls>();
    DeepSpeedTrialContext context;
    LinearTrial trial(context, 3, calls);
    Trainer trainer(trial, context, calls);
    trainer.fit({.max_length = Batch(3), .checkpoint_policy = "none", .checkpoint_dir = folder.string()});
    EXPECT_THAT(trial.batch_indices,
                ElementsAre(0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1));  // two batches are an epoch
    EXPECT_EQ(trainer.batches_trained(), 4);
    EXPECT_EQ(trial.engine_->global_steps(), 4);
  });
}

TEST(Trainer, GoesOnFromACheckpoint) {
  testing::run_ranks(1, [](comm::World&) {
    const testing::TemporaryFolder folder;
    std::vector<double> whole;
    {
      const auto calls = std::make_shared<Calls>();
      DeepSpeedTrialContext context;
      LinearTrial trial(context, 1, calls);
      Trainer(trial, context, calls)
          .fit({.max_length = Batch(10),
                .checkpoint_period = Batch(2),
                .checkpoint_policy = "none",
                .checkpoint_dir = folder.string()});
      whole = trial.seen;
    }
    const auto calls = std::make_shared<Calls>();
    DeepSpeedTrialContext context;
    LinearTrial trial(context, 1, calls);
    Trainer trainer(trial, context, calls);
    trainer.fit({.max_length = Batch(10),
                 .checkpoint_policy = "none",
                 .latest_checkpoint = "batch4",
                 .checkpoint_dir = folder.string()});
    EXPECT_EQ(trial.seen, std::vector<double>(whole.begin() + 8, whole.end()));
    EXPECT_EQ(trainer.batches_trained(), 10);
    EXPECT_EQ(context.get_initial_batch(), 4);
    EXPECT_THAT(testing::error_of<UsageError>(
                    [&] { trainer.fit({.max_length = Batch(1), .latest_checkpoint = "batch99"}); }),
                HasSubstr("latest_checkpoint is 'batch99'"));
  });
}

TEST(Trainer, KeepsTheBestCheckpointsByPolicy) {
  testing::run_ranks(1, [](comm::World&) {
    const testing::TemporaryFolder folder;
    const auto calls = run({.max_length = Batch(6),
                            .validation_period = Batch(1),
                            .checkpoint_policy = "best",
                            .searcher_metric = "mean",
                            .checkpoint_dir = folder.string()});
    // The metric never improves: one checkpoint at the first validation, one at the end.
    EXPECT_TRUE(std::filesystem::exists(folder / "batch1"));
    EXPECT_FALSE(std::filesystem::exists(folder / "batch3"));
    EXPECT_TRUE(std::filesystem::exists(folder / "batch6"));
    EXPECT_THAT(
        testing::error_of<UsageError>([&] {
          run({.max_length = Batch(1), .searcher_metric = "nothing", .checkpoint_dir = folder.string()});
        }),
        HasSubstr("Search method is configured to use metric 'nothing' but model definition returned "
                  "validation metrics"));
  });
}

TEST(Trainer, EndsWithACheckpointWhenItIsStopped) {
  testing::run_ranks(1, [](comm::World&) {
    const testing::TemporaryFolder folder;
    const auto calls = std::make_shared<Calls>();
    calls->preempts = true;
    DeepSpeedTrialContext context;
    LinearTrial trial(context, 1, calls);
    Trainer trainer(trial, context, calls);
    trainer.fit({.max_length = Batch(100),
                 .reporting_period = Batch(2),
                 .checkpoint_policy = "none",
                 .checkpoint_dir = folder.string()});
    EXPECT_EQ(trainer.batches_trained(), 2);
    EXPECT_TRUE(std::filesystem::exists(folder / "batch2"));
  });
}

TEST(Trainer, AveragesOverRanks) {
  const testing::TemporaryFolder folder;
  testing::run_ranks(2, [&](comm::World& world) {
    const auto calls = std::make_shared<Calls>();
    DeepSpeedTrialContext context;
    LinearTrial trial(context, 1, calls);
    const auto counter = context.wrap_reducer(
        [](const std::vector<Json>& updates) { return Json(updates.size()); }, "updates");
    counter->update(1);
    Trainer(trial, context, calls)
        .fit({.max_length = Batch(3), .checkpoint_policy = "none", .checkpoint_dir = folder.string()});
    EXPECT_THAT(trial.seen,
                world.rank() == 0 ? ElementsAre(0, 1, 4, 5, 8, 9) : ElementsAre(2, 3, 6, 7, 10, 11));
    if (world.rank() == 0) {
      // Rank 0 evaluates samples 0, 1, 4 and 5 in two batches, rank 1 samples 2 and 3; the least counts: one batch.
      EXPECT_EQ(calls->validations.at(3)["mean"], 1.5);
      EXPECT_EQ(calls->validations.at(3)["updates"], 0);
    }
  });
}

TEST(Trainer, NamesWhatATrialDoesWrong) {
  testing::run_ranks(1, [](comm::World&) {
    const testing::TemporaryFolder folder;
    const FitOptions options{
        .max_length = Batch(1), .checkpoint_policy = "none", .checkpoint_dir = folder.string()};
    const auto error_of = [&](const std::function<void(LinearTrial&, DeepSpeedTrialContext&)>& change,
                              const FitOptions& given) {
      return testing::error_of<Error>([&] {
        DeepSpeedTrialContext context;
        LinearTrial trial(context, 1, std::make_shared<Calls>());
        change(trial, context);
        Trainer(trial, context).fit(given);
      });
    };
    const auto nothing = [](LinearTrial&, DeepSpeedTrialContext&) {};
    EXPECT_THAT(error_of(nothing, {}), HasSubstr("max_length must be defined in local training mode."));
    EXPECT_THAT(
        error_of([](LinearTrial& trial, auto&) { trial.changes_names = true; }, options),
        HasSubstr("Validation metric names must match across all batches of data: count, mean != other."));
    EXPECT_THAT(
        error_of([](auto&, DeepSpeedTrialContext& context) { context.disable_auto_grad_accumulation(); },
                 options),
        "no error");
    EXPECT_THAT(error_of(
                    [](auto&, DeepSpeedTrialContext& context) {
                      context.set_mpu({});
                      context.set_mpu({});
                    },
                    options),
                HasSubstr("Only one MPU can be passed to DeepSpeedTrialContext."));
    EXPECT_THAT(error_of([](auto&, DeepSpeedTrialContext& context) { context.get_hparam("lr"); }, options),
                HasSubstr("'lr'"));
    EXPECT_THAT(
        testing::error_of<UsageError>([] { DeepSpeedTrialContext().get_num_micro_batches_per_slot(); }),
        HasSubstr("Please call wrap_model_engine before"));
    EXPECT_THAT(testing::error_of<UsageError>([] { DeepSpeedTrialContext().set_mpu({}); }),
                HasSubstr("Please call `wrap_model`"));
    const auto module = torch::nn::Linear(1, 1);
    Json config = config_of(1, 1, 1);
    config["optimizer"]["type"] = "AdamW";
    config["zero_optimization"] = {{"stage", 1}, {"offload_optimizer", {{"device", "cpu"}}}};
    EXPECT_THAT(testing::error_of<Error>([&] {
                  DeepSpeedTrialContext().wrap_model_engine(initialize(module, {.config = config}).engine);
                }),
                HasSubstr("Optimizer offloading is only supported with ZeRO stage 2 and 3."));
  });
}

TEST(OverwriteDeepspeedConfig, MergesInnerObjects) {
  const Json base = {{"a", {{"x", 1}, {"y", 2}}}, {"b", 3}};
  EXPECT_EQ(overwrite_deepspeed_config(base, {{"a", {{"y", 5}}}, {"c", 6}}),
            (Json{{"a", {{"x", 1}, {"y", 5}}}, {"b", 3}, {"c", 6}}));
  EXPECT_THAT(testing::error_of<UsageError>([&] { overwrite_deepspeed_config(base, 3); }),
              HasSubstr("expected an object"));
}

}  // namespace
}  // namespace deepspeed::trial
