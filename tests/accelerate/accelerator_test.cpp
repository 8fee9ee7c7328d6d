// Accelerator's own rules. tests/python/clients/test_accelerate_twins.py compares whole trainings with Accelerate.
#include "deepspeed/accelerate/accelerator/accelerator.h"

#include <fstream>

#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/safetensors.h"

#include "tests/support/environment_variables.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::accelerate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct NetImpl : torch::nn::Module {
  NetImpl() { layer = register_module("layer", torch::nn::Linear(4, 1)); }
  at::Tensor forward(const at::Tensor& x) { return layer->forward(x); }
  torch::nn::Linear layer{nullptr};
};
TORCH_MODULE(Net);

struct Numbers {
  int64_t count;
  size_t size() const { return static_cast<size_t>(count); }
  at::Tensor get(size_t index) const { return at::full({1}, static_cast<int64_t>(index), at::kLong); }
};

struct Rows {
  int64_t count;
  size_t size() const { return static_cast<size_t>(count); }
  at::Tensor get(size_t index) const { return at::full({4}, static_cast<double>(index) / 10.0, at::kFloat); }
};

PluginPtr plugin_of(Json config) {
  return std::make_shared<DeepSpeedPlugin>(
      DeepSpeedPluginArguments{.hf_ds_config = HfDeepSpeedConfig(std::move(config))});
}

/// Returns what is wrong with a prepare() of these parts.
std::string fault_of_prepare(const Json& config, const PrepareRequest& request, int num_processes = 2) {
  return testing::error_of<ConfigError>([&] {
    GradientState state({});
    plan_prepare(*plugin_of(config), request, state, num_processes, false);
  });
}

PrepareRequest request_of(const std::shared_ptr<torch::nn::Module>& module) {
  PrepareRequest request;
  request.batch_sizes = {4};
  request.has_model = true;
  request.module = module;
  return request;
}

TEST(BatchOrder, GivesEachRankOtherBatchesAndFillsTheLast) {
  const auto of_rank = [](int rank, BatchOrder order) {
    order.rank = rank;
    return samples_of_rank(order, samples_of_epoch(order, 0));
  };
  const BatchOrder order{.num_samples = 7, .batch_size = 2, .world_size = 2};
  EXPECT_THAT(of_rank(0, order), ElementsAre(0, 1, 4, 5));
  EXPECT_THAT(of_rank(1, order), ElementsAre(2, 3, 6, 0));
  BatchOrder split = order;
  split.split_batches = true;
  EXPECT_THAT(of_rank(0, split), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(of_rank(1, split), ElementsAre(1, 3, 5, 0));
  BatchOrder uneven = order;
  uneven.even_batches = false;
  EXPECT_THAT(of_rank(1, uneven), ElementsAre(2, 3, 6));
  BatchOrder dropped = order;
  dropped.drop_last = true;
  EXPECT_THAT(of_rank(0, dropped), ElementsAre(0, 1));
}

// torch.randperm(10, generator=torch.Generator().manual_seed(5)) and of seed 6.
TEST(BatchOrder, ShufflesAsPythonDoes) {
  const BatchOrder order{.num_samples = 10, .shuffle = true, .seed = 5};
  EXPECT_THAT(samples_of_epoch(order, 0), ElementsAre(1, 4, 9, 6, 3, 5, 0, 2, 8, 7));
  EXPECT_THAT(samples_of_epoch(order, 1), ElementsAre(0, 7, 5, 1, 8, 3, 9, 2, 4, 6));
}

TEST(GradientState, StepsAtTheEndOfALoader) {
  GradientState state({.num_steps = 2});
  const auto progress = std::make_shared<LoaderProgress>();
  state.begin(progress);
  std::vector<bool> syncs;
  for (int batch = 0; batch < 5; ++batch) {
    progress->at_end = batch == 4;
    state.next_micro_batch();
    syncs.push_back(state.sync_gradients());
  }
  EXPECT_THAT(syncs, ElementsAre(false, true, false, true, true));
  EXPECT_EQ(state.step(), 0);
}

TEST(Prepare, FillsTheAutoValues) {
  const Json config = Json::parse(R"({
    "train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto", "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
      "stage3_param_persistence_threshold": "auto", "stage3_gather_16bit_weights_on_model_save": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
      "warmup_num_steps": "auto", "total_num_steps": "auto"}}})");
  const Net net;
  PrepareRequest request = request_of(net.ptr());
  request.batch_sizes = {8, 4};
  request.hidden_sizes = {16, 32};
  request.dummy_optim = std::make_shared<DummyOptim>(net->parameters(), 0.5, 0.25);
  request.dummy_scheduler = std::make_shared<DummyScheduler>(request.dummy_optim, 101, 7);
  GradientState state({.num_steps = 3});
  const PluginPtr plugin = plugin_of(config);
  const auto options = plan_prepare(*plugin, request, state, 2, false);
  const Json filled = options.config->read();
  EXPECT_EQ(filled["train_micro_batch_size_per_gpu"], 4);
  EXPECT_EQ(filled["train_batch_size"], 24);
  EXPECT_EQ(filled["gradient_accumulation_steps"], 3);
  EXPECT_EQ(filled["gradient_clipping"], 1.0);
  EXPECT_EQ(filled["zero_optimization"]["reduce_bucket_size"], 1024);
  EXPECT_EQ(filled["zero_optimization"]["stage3_prefetch_bucket_size"], 921);
  EXPECT_EQ(filled["zero_optimization"]["stage3_param_persistence_threshold"], 320);
  EXPECT_EQ(filled["optimizer"]["params"], (Json{{"lr", 0.5}, {"weight_decay", 0.25}}));
  EXPECT_EQ(
      filled["scheduler"]["params"],
      (Json{{"warmup_min_lr", 0}, {"warmup_max_lr", 0.5}, {"warmup_num_steps", 7}, {"total_num_steps", 51}}));
}

TEST(Prepare, LetsTheConfigsStepsWin) {
  GradientState state({.num_steps = 3});
  const Json config = {{"zero_optimization", {{"stage", 0}}},
                       {"gradient_accumulation_steps", 5},
                       {"train_micro_batch_size_per_gpu", 1}};
  plan_prepare(*plugin_of(config), {}, state, 1, false);
  EXPECT_EQ(state.num_steps(), 5);
}

TEST(Prepare, RefusesOptimizersAndSchedulesThatDoNotFitTheConfig) {
  const Net net;
  const auto own = std::make_shared<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(0.1));
  const auto dummy = std::make_shared<DummyOptim>(net->parameters());
  const Json bare = {{"zero_optimization", {{"stage", 2}}}};
  Json with_optimizer = bare;
  with_optimizer["optimizer"] = {{"type", "AdamW"}};
  Json with_scheduler = bare;
  with_scheduler["scheduler"] = {{"type", "WarmupLR"}};
  PrepareRequest request = request_of(net.ptr());
  request.optimizer = own;
  EXPECT_THAT(
      fault_of_prepare(with_optimizer, request),
      HasSubstr("You cannot specify an optimizer in the config file and in the code at the same time."));
  request.scheduler = get_scheduler("constant", *own);
  EXPECT_THAT(
      fault_of_prepare(with_scheduler, request),
      HasSubstr("You cannot specify a scheduler in the config file and in the code at the same time."));
  request = request_of(net.ptr());
  request.dummy_optim = dummy;
  EXPECT_THAT(
      fault_of_prepare(bare, request),
      HasSubstr("You cannot create a `DummyOptim` without specifying an optimizer in the config file."));
  request.dummy_scheduler = std::make_shared<DummyScheduler>(dummy);
  EXPECT_THAT(
      fault_of_prepare(with_optimizer, request),
      HasSubstr("Either specify a scheduler in the config file or pass in the `lr_scheduler_callable`"));
  request.dummy_scheduler = nullptr;
  request.scheduler = get_scheduler("constant", *own);
  EXPECT_THAT(fault_of_prepare(with_optimizer, request),
              HasSubstr("You can only specify `accelerate.utils.DummyScheduler`"));
}

TEST(Prepare, NamesWhatItCannotFill) {
  const Net net;
  const Json open = {{"zero_optimization", {{"stage", 2}, {"reduce_bucket_size", "auto"}}}};
  PrepareRequest request = request_of(net.ptr());
  EXPECT_THAT(
      fault_of_prepare(open, request),
      HasSubstr("Can't find `model.config` entry, therefore it's not possible to automatically fill out the "
                "following "
                "`auto` entries in the DeepSpeed config file: ['zero_optimization.reduce_bucket_size']."));
  request.has_config = true;
  EXPECT_THAT(fault_of_prepare(open, request),
              HasSubstr("Can find neither `model.config.hidden_size` nor `model.config.hidden_sizes`"));
  Json batch = {{"zero_optimization", {{"stage", 2}}}, {"train_micro_batch_size_per_gpu", "auto"}};
  request.batch_sizes = {};
  EXPECT_THAT(fault_of_prepare(batch, request),
              HasSubstr("requires you to pass at least one of training or evaluation dataloaders"));
  const Json disk = {{"zero_optimization", {{"stage", 3}, {"offload_param", {{"device", "nvme"}}}}},
                     {"train_micro_batch_size_per_gpu", 1}};
  EXPECT_THAT(fault_of_prepare(disk, request_of(net.ptr())),
              HasSubstr("zero_optimization.offload_param.nvme_path: got null"));
}

TEST(Prepare, ReplacesOptimizersWhereStatesAreOffloaded) {
  const Net net;
  const torch::optim::RMSprop other(net->parameters(), torch::optim::RMSpropOptions(0.1));
  EXPECT_THAT(testing::error_of<NotSupportedError>([&] { cpu_optimizer_for(other); }),
              HasSubstr("zero_force_ds_cpu_optimizer"));
  const torch::optim::AdamW adam(net->parameters(), torch::optim::AdamWOptions(0.5).weight_decay(0.25));
  EXPECT_EQ(cpu_optimizer_for(adam)->param_groups().front().options().get_lr(), 0.5);
}

TEST(Schedules, HaveTheRatesOfTransformers) {
  const Net net;
  torch::optim::AdamW adam(net->parameters(), torch::optim::AdamWOptions(1.0));
  const auto schedule = get_scheduler("linear", adam, 2, 6);
  std::vector<double> rates;
  for (int step = 0; step < 7; ++step) {
    rates.push_back(adam.param_groups().front().options().get_lr());
    schedule->step();
  }
  EXPECT_THAT(rates, ElementsAre(0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0));
  EXPECT_THAT(testing::error_of<UsageError>([&] { get_scheduler("linear", adam, 2); }),
              HasSubstr("num_training_steps"));
  EXPECT_THAT(testing::error_of<UsageError>([&] { get_scheduler("square", adam); }), HasSubstr("'square'"));
}

TEST(Project, NamesCheckpointsAndKeepsTheLatest) {
  const testing::TemporaryFolder folder;
  ProjectConfiguration project{
      .project_dir = folder.string(), .automatic_checkpoint_naming = true, .total_limit = 2};
  const auto checkpoints = folder / "checkpoints";
  std::filesystem::create_directories(checkpoints / "mine");
  for (; project.iteration < 4; ++project.iteration)
    std::filesystem::create_directories(next_checkpoint(project, true));
  EXPECT_FALSE(std::filesystem::exists(checkpoints / "checkpoint_1"));
  EXPECT_TRUE(std::filesystem::exists(checkpoints / "checkpoint_2"));
  EXPECT_TRUE(std::filesystem::exists(checkpoints / "mine"));
  EXPECT_EQ(latest_checkpoint(project), checkpoints / "checkpoint_3");
  for (const int taken : {0, 3}) {  // a run that starts anew leaves the checkpoints of the last one alone
    project.iteration = taken;
    EXPECT_THAT(testing::error_of<UsageError>([&] { next_checkpoint(project, true); }),
                HasSubstr("already exists, and the next one is " + std::to_string(taken)));
  }
  EXPECT_EQ(number_of_checkpoint(checkpoints / "checkpoint_12"), 12);
  EXPECT_EQ(number_of_checkpoint(checkpoints / "checkpoint_1x"), std::nullopt);
}

TEST(Accelerator, NeedsNoPlugin) {
  testing::run_ranks(2, [](comm::World&) {
    const testing::EnvironmentVariables none({});
    AcceleratorState::reset();
    manual_seed(1);
    Accelerator accelerator({.gradient_accumulation_steps = 2});
    EXPECT_EQ(accelerator.distributed_type(), DistributedType::kMultiCpu);
    const Net net;
    const auto adam =
        std::make_shared<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(0.1));
    auto [model, optimizer, loader] =
        accelerator.prepare(net, adam, make_data_loader(Rows{12}, {.batch_size = 2}));
    EXPECT_EQ(loader->size(), 3);
    double first = 0.0, last = 0.0;
    for (int epoch = 0; epoch < 20; ++epoch) {
      for (const at::Tensor& x : *loader) {
        const auto micro_batch = accelerator.accumulate(model);
        const at::Tensor loss = (model->forward(x) - x.sum(1, true)).pow(2).mean();
        accelerator.backward(loss);
        optimizer->step();
        last = accelerator.reduce(loss, "mean").item<double>();
        if (first == 0.0) first = last;
      }
    }
    EXPECT_LT(last, first / 3.0);
    EXPECT_EQ(model->global_steps(), 40);  // 3 micro batches an epoch make 2 steps
    EXPECT_FALSE(accelerator.optimizer_step_was_skipped());
  });
}

TEST(Accelerator, GathersAndDropsWhatTheLastBatchRepeats) {
  testing::run_ranks(2, [](comm::World& world) {
    const testing::EnvironmentVariables none({});
    AcceleratorState::reset();
    Accelerator accelerator;
    const auto loader = accelerator.prepare(make_data_loader(Numbers{7}, {.batch_size = 2}));
    std::vector<int64_t> seen;
    for (const at::Tensor& batch : *loader) {
      const at::Tensor all = accelerator.gather_for_metrics(batch).view({-1});
      for (int64_t i = 0; i < all.size(0); ++i) seen.push_back(all[i].item<int64_t>());
    }
    EXPECT_THAT(seen, ElementsAre(0, 1, 2, 3, 4, 5, 6));
    skip_first_batches(loader, 1);
    std::vector<int64_t> rest;
    for (const at::Tensor& batch : *loader) rest.push_back(batch[0].item<int64_t>());
    EXPECT_THAT(rest, ElementsAre(world.rank() == 0 ? 4 : 6));
    const at::Tensor own = at::full({world.rank() + 1, 2}, world.rank(), at::kLong);
    const at::Tensor padded = accelerator.pad_across_processes(own, 0, 9);
    EXPECT_EQ(padded.size(0), 2);
    EXPECT_EQ(padded[1][0].item<int64_t>(), world.rank() == 0 ? 9 : 1);
    EXPECT_EQ(accelerator.reduce(at::ones({2}), "sum", 0.5).sum().item<double>(), 2.0);
    const auto pair = accelerator.gather(std::pair<at::Tensor, at::Tensor>(at::ones({1}), at::zeros({})));
    EXPECT_EQ(pair.first.size(0), 2);
    EXPECT_EQ(pair.second.size(0), 2);
  });
}

/// Returns the numbers that a loader gives in one loop.
template <class Loader>
std::vector<int64_t> numbers_of(Loader& loader) {
  std::vector<int64_t> numbers;
  for (const at::Tensor& batch : loader)
    for (int64_t i = 0; i < batch.numel(); ++i) numbers.push_back(batch.view(-1)[i].item<int64_t>());
  return numbers;
}

TEST(DataLoader, SkipsInTheNextLoopOnly) {
  DataLoader<Numbers> loader(Numbers{6}, {.batch_size = 2});
  for (const int64_t skipped : {2, 1}) {
    loader.skip_first_batches(skipped);
    EXPECT_EQ(numbers_of(loader).size(), static_cast<size_t>(6 - 2 * skipped));
    EXPECT_EQ(numbers_of(loader).size(), 6u);
  }
  loader.skip_first_batches(3);
  EXPECT_EQ(loader.epoch(), 4);
  EXPECT_THAT(numbers_of(loader), ElementsAre());
  EXPECT_EQ(loader.epoch(), 5);
  EXPECT_EQ(numbers_of(loader).size(), 6u);
  EXPECT_THAT(testing::error_of<UsageError>([&] { loader.skip_first_batches(-1); }), HasSubstr("got -1"));
}

TEST(DataLoader, SetsItsEpoch) {
  const DataLoaderArguments arguments{.batch_size = 3, .shuffle = true, .seed = 5};
  DataLoader<Numbers> loader(Numbers{10}, arguments), other(Numbers{10}, arguments);
  const auto first = numbers_of(loader), second = numbers_of(loader);
  EXPECT_NE(first, second);
  other.set_epoch(1);
  EXPECT_EQ(other.epoch(), 1);
  EXPECT_EQ(numbers_of(other), second);
  other.set_epoch(0);
  EXPECT_EQ(numbers_of(other), first);
  for (const at::Tensor& batch : other) {
    EXPECT_EQ(other.epoch(), 1);  // of a loop that has not ended
    EXPECT_EQ(batch.numel(), 3);
    break;
  }
  other.set_epoch(1);
  EXPECT_EQ(numbers_of(other), second);
}

TEST(Accelerator, GoesOnInTheEpochOfTheSave) {
  const testing::TemporaryFolder folder;
  testing::run_ranks(2, [&](comm::World&) {
    const testing::EnvironmentVariables none({});
    const auto begin = [&](Accelerator& accelerator) {
      manual_seed(1);
      const Net net;
      const auto adam =
          std::make_shared<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(0.1));
      return accelerator.prepare(net, adam,
                                 make_data_loader(Rows{12}, {.batch_size = 2, .shuffle = true, .seed = 3}));
    };
    const auto first_of = [](const at::Tensor& batch) { return batch[0][0].item<float>(); };
    std::vector<float> rest, resumed;
    {
      AcceleratorState::reset();
      Accelerator accelerator;
      auto [model, optimizer, loader] = begin(accelerator);
      for (const at::Tensor& x : *loader) accelerator.backward(model->forward(x).mean());
      int64_t batch = 0;
      for (const at::Tensor& x : *loader) {
        accelerator.backward(model->forward(x).mean());
        if (batch++ > 0)
          rest.push_back(first_of(x));
        else
          accelerator.save_state(folder.string());
      }
    }
    AcceleratorState::reset();
    Accelerator accelerator;
    auto [model, optimizer, loader] = begin(accelerator);
    accelerator.load_state(folder.string());
    skip_first_batches(loader, 1);
    for (const at::Tensor& x : *loader) resumed.push_back(first_of(x));
    EXPECT_EQ(rest.size(), 2u);
    EXPECT_EQ(resumed, rest);
  });
}

TEST(Accelerator, SavesWithoutGradientsThatWait) {
  testing::run_ranks(1, [](comm::World&) {
    const testing::EnvironmentVariables none({});
    AcceleratorState::reset();
    const testing::TemporaryFolder folder;
    Accelerator accelerator({.gradient_accumulation_steps = 3});
    const Net net;
    const auto adam =
        std::make_shared<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(0.1));
    auto [model, optimizer, loader] =
        accelerator.prepare(net, adam, make_data_loader(Rows{12}, {.batch_size = 2}));
    {
      const auto micro_batch = accelerator.accumulate(model);
      accelerator.backward(model->forward(at::ones({2, 4})).mean());
    }
    accelerator.save_state(folder.string());
    EXPECT_TRUE(std::filesystem::is_directory(folder / "pytorch_model"));
  });
}

TEST(Accelerator, SavesWholeWeightsAndObjects) {
  testing::run_ranks(2, [](comm::World&) {
    const testing::EnvironmentVariables none({});
    AcceleratorState::reset();
    const testing::TemporaryFolder folder;
    const auto plugin = std::make_shared<DeepSpeedPlugin>(
        DeepSpeedPluginArguments{.zero_stage = 3, .zero3_save_16bit_model = true});
    Accelerator accelerator({.mixed_precision = "bf16", .deepspeed_plugin = plugin});
    const Net net;
    const auto adam =
        std::make_shared<torch::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(0.1));
    auto [model, optimizer, loader] =
        accelerator.prepare(net, adam, make_data_loader(Rows{8}, {.batch_size = 2}));
    accelerator.save_model(*model, folder.string());
    const NamedTensors state = accelerator.get_state_dict(*model);
    EXPECT_EQ(state.size(), accelerator.is_main_process() ? 2u : 0u);
    if (accelerator.is_main_process()) {
      const auto read = by_name(checkpoint::read_safetensors(folder / "model.safetensors"));
      EXPECT_TRUE(at::equal(read.at("layer.weight"), state.front().tensor));
      accelerator.save_model(*model, (folder / "bin").string(), 1, false);
    } else {
      accelerator.save_model(*model, "unused", 1, false);
    }
    if (accelerator.is_main_process()) {
      EXPECT_TRUE(std::filesystem::exists(folder / "bin/pytorch_model-00001-of-00002.bin"));
      EXPECT_TRUE(std::filesystem::exists(folder / "bin/pytorch_model.bin.index.json"));
    }
    EXPECT_THAT(testing::error_of<UsageError>([&] { accelerator.load_state("no_folder"); }),
                HasSubstr("no_folder"));
    EXPECT_THAT(testing::error_of<UsageError>([&] { accelerator.save_state(); }),
                HasSubstr("automatic_checkpoint_naming"));
  });
}

TEST(Accelerator, KeepsSeveralPluginsByName) {
  testing::run_ranks(1, [](comm::World&) {
    const testing::EnvironmentVariables none({});
    AcceleratorState::reset();
    const auto student = std::make_shared<DeepSpeedPlugin>(DeepSpeedPluginArguments{.zero_stage = 2});
    const auto teacher = std::make_shared<DeepSpeedPlugin>(DeepSpeedPluginArguments{.zero_stage = 3});
    Accelerator accelerator({.deepspeed_plugins = NamedPlugins{{"student", student}, {"teacher", teacher}}});
    AcceleratorState state;
    EXPECT_EQ(state.deepspeed_plugin(), student);
    state.select_deepspeed_plugin("teacher");
    EXPECT_EQ(accelerator.deepspeed_plugin(), teacher);
    EXPECT_THAT(testing::error_of<UsageError>([&] { state.select_deepspeed_plugin("x"); }),
                HasSubstr("'student', 'teacher'"));
    EXPECT_THAT(testing::error_of<NotSupportedError>([&] { Accelerator({.deepspeed_plugin = student}); }),
                HasSubstr("when creating a second `Accelerator`"));
    EXPECT_NO_THROW(Accelerator());
    EXPECT_THAT(testing::error_of<UsageError>(
                    [&] { Accelerator({.deepspeed_plugin = student, .deepspeed_plugins = teacher}); }),
                HasSubstr("both `deepspeed_plugins` and `deepspeed_plugin`"));
    const Net net;  // a model alone, at stage 3, is for evaluation
    const auto model = accelerator.prepare(net, make_data_loader(Rows{4}, {.batch_size = 2}));
    EXPECT_EQ(std::get<0>(model)->forward(at::ones({1, 4})).sizes(), (std::vector<int64_t>{1, 1}));
  });
}

TEST(Accelerator, TracksValuesInFiles) {
  testing::run_ranks(1, [](comm::World&) {
    const testing::EnvironmentVariables none({});
    AcceleratorState::reset();
    const testing::TemporaryFolder folder;
    Accelerator accelerator({.log_with = {"csv"}, .project_dir = folder.string()});
    accelerator.init_trackers("run", {{"lr", 0.1}});
    accelerator.log({{"loss", 0.5}}, 3);
    accelerator.end_training();
    std::ifstream file(folder / "run/loss.csv");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_THAT(text, HasSubstr("3,0.5"));
    EXPECT_TRUE(std::filesystem::exists(folder / "run/config.json"));
    EXPECT_THAT(testing::error_of<NotSupportedError>([&] { make_tracker("wandb", "run", "x"); }),
                HasSubstr("use csv"));
  });
}

TEST(AcceleratorState, PrintsThePythonText) {
  testing::run_ranks(2, [](comm::World& world) {
    const testing::EnvironmentVariables none({});
    AcceleratorState::reset();
    EXPECT_THAT(testing::error_of<UsageError>([] { AcceleratorState(); }),
                HasSubstr("Please make sure to properly initialize"));
    const auto plugin = std::make_shared<DeepSpeedPlugin>(DeepSpeedPluginArguments{.zero_stage = 1});
    const Accelerator accelerator({.mixed_precision = "bf16", .deepspeed_plugin = plugin});
    EXPECT_THAT(
        AcceleratorState().to_string(),
        HasSubstr(message(
            "Distributed environment: DEEPSPEED  Backend: gloo\nNum processes: 2\nProcess index: ",
            world.rank(), "\nLocal process index: ", world.rank(),
            "\nDevice: cpu\n\nMixed precision type: bf16\nds_config: {'train_batch_size': 'auto', ")));
  });
}

TEST(AcceleratorState, RefusesRanksThatDivideAModel) {
  const testing::EnvironmentVariables set(
      {{"ACCELERATE_USE_PARALLELISM_CONFIG", "true"}, {"PARALLELISM_CONFIG_SP_SIZE", "2"}});
  AcceleratorState::reset();
  EXPECT_THAT(testing::error_of<NotSupportedError>([] { Accelerator(); }),
              HasSubstr("PARALLELISM_CONFIG_SP_SIZE is 2"));
}

}  // namespace
}  // namespace deepspeed::accelerate
