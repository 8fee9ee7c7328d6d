// Layers that ranks cut, as Megatron's, by a program's own mpu: two slices with two data-parallel ranks each,
// at every stage, against the whole model in plain torch. Then what slices hold alike: random numbers, the
// norm over stages of the program's own, files, zero::Init, and copies that differ.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/module.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adam.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/convert/universal.h"
#include "deepspeed/checkpoint/convert/zero_to_fp32.h"
#include "deepspeed/checkpointing.h"
#include "deepspeed/comm/functions.h"
#include "deepspeed/comm/mpu.h"
#include "deepspeed/initialize.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/init.h"

#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Weights = std::map<std::string, at::Tensor>;

constexpr int64_t kSize = 6, kHidden = 12, kRows = 2;
constexpr int kSteps = 4, kSavedAt = 2;
constexpr double kClipping = 0.05;

comm::ProcessGroup slices_of_layers;  // of this rank; none: the layers are whole

struct IntoLayers : torch::autograd::Function<IntoLayers> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) { return x.view_as(x); }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    at::Tensor sum = gradients[0].clone();
    slices_of_layers.all_reduce(sum);
    return {sum};
  }
};
struct OutOfLayers : torch::autograd::Function<OutOfLayers> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x) {
    at::Tensor sum = x.clone();
    slices_of_layers.all_reduce(sum);
    return sum;
  }
  static variable_list backward(AutogradContext*, variable_list gradients) { return gradients; }
};

// The part of a matrix that this rank's slice has.
at::Tensor part_of(const at::Tensor& whole, int64_t axis) {
  if (!slices_of_layers) return whole;
  return whole.chunk(slices_of_layers.size(), axis)[size_t(slices_of_layers.rank())].contiguous();
}

// Matrices are cut, what has one dimension is alike on the slices.
struct SlicedLayer : torch::nn::Module {
  SlicedLayer(double seed, at::ScalarType type) {
    const auto numbers = [&](double offset, at::IntArrayRef sizes) {
      const int64_t numel = c10::multiply_integers(sizes);
      return (at::arange(numel, at::kDouble) * 0.7 + seed + offset).sin().mul(0.3).view(sizes).to(type);
    };
    norm = register_parameter("norm", numbers(1, {kSize}));
    up = register_parameter("up", part_of(numbers(2, {kHidden, kSize}), 0));
    down = register_parameter("down", part_of(numbers(3, {kSize, kHidden}), 1));
    bias = register_parameter("bias", numbers(4, {kSize}));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor inner = at::layer_norm(x, {kSize}, norm);
    if (slices_of_layers) inner = IntoLayers::apply(inner);
    const at::Tensor output = at::linear(at::tanh(at::linear(inner, up)), down);
    return x + (slices_of_layers ? OutOfLayers::apply(output) : output) + bias;
  }
  at::Tensor norm, up, down, bias;
};

struct SlicedModel : torch::nn::Module {
  explicit SlicedModel(at::ScalarType type = at::kDouble) {
    for (int index = 0; index < 2; ++index) {
      const std::string name = "layer" + std::to_string(index);
      layers.push_back(register_module(name, std::make_shared<SlicedLayer>(5.0 * index, type)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& layer : layers) x = layer->forward(x);
    return (x - 1).square().mean();
  }
  std::vector<std::shared_ptr<SlicedLayer>> layers;
};

// Slices are neighbours: of four ranks 0 and 1 have one copy, 2 and 3 the other.
class TwoSlices : public Mpu {
 public:
  explicit TwoSlices(const comm::World& world) {
    const int half = world.size() / 2;
    for (int copy = 0; copy < half; ++copy) {
      const comm::ProcessGroup model = comm::new_group({2 * copy, 2 * copy + 1});
      if (world.rank() / 2 == copy) model_ = model;
    }
    for (int slice = 0; slice < 2; ++slice) {
      std::vector<int> ranks;
      for (int copy = 0; copy < half; ++copy) ranks.push_back(2 * copy + slice);
      const comm::ProcessGroup data = comm::new_group(ranks);
      if (world.rank() % 2 == slice) data_ = data;
    }
    slices_of_layers = model_;
  }
  comm::ProcessGroup get_data_parallel_group() const override { return data_; }
  comm::ProcessGroup get_model_parallel_group() const override { return model_; }
  bool is_model_parallel_parameter(const at::Tensor& param) const override { return param.dim() == 2; }

 private:
  comm::ProcessGroup data_, model_;
};

Json sliced_config(int stage) {
  return {
      {"train_micro_batch_size_per_gpu", kRows},
      {"gradient_clipping", kClipping},
      {"zero_optimization", {{"stage", stage}, {"stage3_gather_16bit_weights_on_model_save", stage == 3}}},
      {"optimizer", {{"type", "Adam"}, {"params", {{"lr", 0.01}}}}}};
}

at::Tensor rows_of(int step, int64_t num_rows, at::ScalarType type) {
  return (at::arange(num_rows * kSize, at::kDouble) * 0.31 + step).cos().view({num_rows, kSize}).to(type);
}

struct Training {
  std::vector<double> losses, norms;
  Weights weights;
};

// The whole model by torch alone, on all data-parallel ranks' rows.
Training train_whole(int data_ranks, at::ScalarType type) {
  const comm::ProcessGroup slices = std::exchange(slices_of_layers, {});
  SlicedModel model(type);
  torch::optim::Adam adam(model.parameters(), torch::optim::AdamOptions(0.01));
  Training trained;
  for (int step = 0; step < kSteps; ++step) {
    adam.zero_grad();
    const at::Tensor loss = model.forward(rows_of(step, kRows * data_ranks, type));
    loss.backward();
    trained.losses.push_back(loss.item<double>());
    trained.norms.push_back(torch::nn::utils::clip_grad_norm_(model.parameters(), kClipping));
    adam.step();
  }
  for (const auto& param : model.named_parameters()) trained.weights[param.key()] = param.value().detach();
  slices_of_layers = slices;
  return trained;
}

template <class Engine>
void train_on(Engine& engine, const Mpu& mpu, int first, int last, Training& trained,
              at::ScalarType type = at::kDouble) {
  const int data_ranks = mpu.get_data_parallel_world_size(), data_rank = mpu.get_data_parallel_rank();
  for (int step = first; step < last; ++step) {
    const at::Tensor rows = rows_of(step, kRows * data_ranks, type);
    const at::Tensor loss = engine(rows.slice(0, data_rank * kRows, (data_rank + 1) * kRows));
    engine.backward(loss);
    engine.step();
    trained.losses.push_back(
        mpu.get_data_parallel_group().all_reduce_scalar(loss.template item<double>(), comm::ReduceOp::kAvg));
    trained.norms.push_back(engine.get_global_grad_norm().value_or(0));
  }
}

void expect_whole(const SlicedModel& model, const Training& trained, const Training& expected,
                  double tolerance = 1e-9) {
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(trained.losses[step], expected.losses[step], tolerance) << "step " << step;
    EXPECT_NEAR(trained.norms[step], expected.norms[step], tolerance * 10) << "step " << step;
  }
  const zero::GatheredParameters gathered(model.parameters());
  for (const auto& param : model.named_parameters()) {
    const at::Tensor& whole = expected.weights.at(param.key());
    const at::Tensor part =
        param.value().dim() == 1 ? whole : part_of(whole, whole.size(0) == kHidden ? 0 : 1);
    EXPECT_TRUE(at::allclose(param.value().detach(), part, 0, tolerance * 100)) << param.key();
  }
}

// Says whether the slices have other numbers.
bool differs_on_slices(const at::Tensor& tensor) {
  const at::Tensor own = tensor.detach().reshape({-1}).contiguous(),
                   all = at::empty({2 * own.numel()}, own.options());
  slices_of_layers.all_gather(all, own);
  return !all.slice(0, 0, own.numel()).equal(all.slice(0, own.numel()));
}

class SlicedLayersAtStage : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Stages, SlicedLayersAtStage, ::testing::Values(0, 1, 2, 3));

TEST_P(SlicedLayersAtStage, TrainAsTheWholeModelAndResume) {
  const TemporaryFolder folder;
  run_ranks(4, [&](comm::World& world) {
    const auto mpu = std::make_shared<TwoSlices>(world);
    const auto make = [&](const std::shared_ptr<SlicedModel>& model) {
      return initialize(model, {.config = sliced_config(GetParam()), .mpu = mpu}).engine;
    };
    const auto first = std::make_shared<SlicedModel>(), second = std::make_shared<SlicedModel>();
    Training trained;
    const auto saving = make(first);
    train_on(*saving, *mpu, 0, kSavedAt, trained);
    saving->save_checkpoint(folder.path());
    const auto resuming = make(second);
    EXPECT_FALSE(resuming->load_checkpoint(folder.path()).path.empty());
    train_on(*resuming, *mpu, kSavedAt, kSteps, trained);
    expect_whole(*second, trained, train_whole(2, at::kDouble));
    for (const auto& layer : second->layers) {
      const zero::GatheredParameters gathered(layer->parameters());
      EXPECT_FALSE(differs_on_slices(layer->norm));
      EXPECT_FALSE(differs_on_slices(layer->bias));
    }
  });
}

TEST_P(SlicedLayersAtStage, HaveFilesOfWeightsForEachSlice) {
  const TemporaryFolder folder;
  run_ranks(4, [&](comm::World& world) {
    const auto mpu = std::make_shared<TwoSlices>(world);
    const auto model = std::make_shared<SlicedModel>(at::kFloat);
    const auto engine = initialize(model, {.config = sliced_config(GetParam()), .mpu = mpu}).engine;
    Training trained;
    train_on(*engine, *mpu, 0, 1, trained, at::kFloat);
    engine->save_checkpoint(folder / "run");
    engine->save_16bit_model(folder / "weights", "model.bin");
    const zero::GatheredParameters gathered(model->parameters());
    const int slice = mpu->get_model_parallel_rank();
    const std::string own = "mp_rank_0" + std::to_string(slice) + "_";
    const auto expect_own = [&](const NamedTensors& weights) {
      const auto params = model->named_parameters();
      ASSERT_EQ(weights.size(), params.size());
      for (const auto& [name, tensor] : weights) EXPECT_TRUE(tensor.equal(params[name].detach())) << name;
    };
    const auto read = [&](const std::filesystem::path& file) {
      NamedTensors weights;
      const checkpoint::Value content = checkpoint::read_torch_archive(file);
      for (const auto& [name, value] : content.as_dict().items())
        weights.emplace_back(name.as_string(), value.as_tensor());
      return weights;
    };
    expect_own(read(folder / "weights" / (own + "model.bin")));
    expect_own(
        checkpoint::get_fp32_state_dict_from_zero_checkpoint(folder / "run", std::nullopt, false, slice));
    EXPECT_ERROR(UsageError, checkpoint::get_fp32_state_dict_from_zero_checkpoint(folder / "run"),
                 "2 model-parallel ranks", "mp_rank = 0 to 1");
    EXPECT_ERROR(UsageError,
                 checkpoint::get_fp32_state_dict_from_zero_checkpoint(folder / "run", std::nullopt, false, 2),
                 "mp_rank is 2", "0 to 1");
    const std::filesystem::path converted = folder / ("fp32_of_" + std::to_string(world.rank()));
    checkpoint::convert_zero_checkpoint_to_fp32_state_dict(folder / "run", converted);
    expect_own(read(converted / (own + "pytorch_model.bin")));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(converted), {}), 2);
    checkpoint::convert_zero_checkpoint_to_fp32_state_dict(folder / "run", converted / "one.bin",
                                                           {.mp_rank = slice});
    expect_own(read(converted / "one.bin"));
    EXPECT_ERROR(NotSupportedError,
                 checkpoint::convert_to_universal(folder / "run/global_step1", converted / "universal"),
                 "2 model-parallel ranks", "load_checkpoint() resumes", "zero_to_fp32");
  });
}

// Two stages of the program's own with two slices each: ranks 0 and 1 share the layers of the first stage
// out.
class TwoStages : public Mpu {
 public:
  explicit TwoStages(const comm::World& world) : model_(comm::new_group({0, 1, 2, 3})) {
    for (int rank = 0; rank < 4; ++rank) {
      const comm::ProcessGroup alone = comm::new_group({rank});
      if (world.rank() == rank) data_ = alone;
    }
    for (int stage = 0; stage < 2; ++stage) {
      const comm::ProcessGroup slices = comm::new_group({2 * stage, 2 * stage + 1});
      if (world.rank() / 2 == stage) tensor_ = slices;
    }
  }
  comm::ProcessGroup get_data_parallel_group() const override { return data_; }
  comm::ProcessGroup get_model_parallel_group() const override { return model_; }
  comm::ProcessGroup get_tensor_model_parallel_group() const override { return tensor_; }
  bool is_model_parallel_parameter(const at::Tensor& param) const override { return param.dim() == 2; }

 private:
  comm::ProcessGroup data_, model_, tensor_;
};

struct StageOfTwoSlices : torch::nn::Module {
  StageOfTwoSlices() {
    part = register_parameter("part", at::ones({1, 1}));
    copy = register_parameter("copy", at::ones({1}));
  }
  at::Tensor forward(const at::Tensor& of_part, const at::Tensor& of_copy) {
    return (part * of_part).sum() + (copy * of_copy).sum();
  }
  at::Tensor part, copy;
};

TEST_P(SlicedLayersAtStage, CountTheNormOfStagesOfTheProgramsOwnAndLoadTheirParts) {
  const TemporaryFolder folder;
  run_ranks(4, [&](comm::World& world) {
    const auto mpu = std::make_shared<TwoStages>(world);
    const auto make = [&](const std::shared_ptr<StageOfTwoSlices>& model) {
      return initialize(model, {.config = sliced_config(GetParam()), .mpu = mpu}).engine;
    };
    const auto saved = std::make_shared<StageOfTwoSlices>(), loaded = std::make_shared<StageOfTwoSlices>();
    const auto engine = make(saved);
    const auto number = [](double value) { return at::full({1}, value); };
    engine->backward((*engine)(number(1.0 + world.rank()), number(3.0 + world.rank() / 2)));
    engine->step();
    // Parts have the gradients 1 to 4, the copies of a stage 3 and 4.
    EXPECT_NEAR(*engine->get_global_grad_norm(), std::sqrt(1 + 4 + 9 + 16 + 9 + 16), 1e-6);
    engine->save_checkpoint(folder.path());
    EXPECT_FALSE(make(loaded)->load_checkpoint(folder.path()).path.empty());
    const zero::GatheredParameters gathered({saved->part, saved->copy, loaded->part, loaded->copy});
    EXPECT_TRUE(loaded->part.equal(saved->part));
    EXPECT_TRUE(loaded->copy.equal(saved->copy));
  });
}

TEST(SlicedLayers, RefuseATensorParallelGroupThatIsNoPartOfTheModels) {
  class Crossed : public TwoSlices {
   public:
    explicit Crossed(const comm::World& world) : TwoSlices(world) {
      for (int first = 0; first < 2; ++first) {
        const comm::ProcessGroup crossed = comm::new_group({first, first + 2});
        if (world.rank() % 2 == first) crossed_ = crossed;
      }
    }
    comm::ProcessGroup get_tensor_model_parallel_group() const override { return crossed_; }

   private:
    comm::ProcessGroup crossed_;
  };
  run_ranks(4, [](comm::World& world) {
    const auto mpu = std::make_shared<Crossed>(world);
    EXPECT_ERROR(UsageError,
                 initialize(std::make_shared<SlicedModel>(), {.config = sliced_config(0), .mpu = mpu}),
                 "mpu: got a tensor-parallel group of the ranks [", "equal parts of the model-parallel one");
  });
}

TEST(SlicedLayers, DrawSharedParametersEqually) {
  run_ranks(4, [](comm::World& world) {
    const auto mpu = std::make_shared<TwoSlices>(world);
    for (const bool has_seed : {false, true}) {
      torch::manual_seed(3);
      Json config = sliced_config(1);
      if (has_seed) config["seed"] = 7;
      const auto engine = initialize(std::make_shared<SlicedModel>(), {.config = config, .mpu = mpu}).engine;
      const at::Tensor drawn = at::rand({4}), of_all = at::empty({16});
      EXPECT_FALSE(differs_on_slices(drawn)) << has_seed;
      world.group().all_gather(of_all, drawn);
      EXPECT_FALSE(of_all.slice(0, 0, 4).equal(of_all.slice(0, 8, 12))) << "other data, the same numbers";
    }
  });
}

TEST(SlicedLayers, ContinueTheStreamsOfModelParallelCudaManualSeed) {
  run_ranks(4, [](comm::World& world) {
    const auto mpu = std::make_shared<TwoSlices>(world);
    for (const bool has_seed : {false, true}) {
      model_parallel_cuda_manual_seed(1234, mpu->get_model_parallel_rank());
      const at::Tensor expected = at::rand({4});
      model_parallel_cuda_manual_seed(1234, mpu->get_model_parallel_rank());
      Json config = sliced_config(1);
      if (has_seed) config["seed"] = 7;
      const auto engine = initialize(std::make_shared<SlicedModel>(), {.config = config, .mpu = mpu}).engine;
      EXPECT_TRUE(at::rand({4}).equal(expected)) << has_seed;
      const auto fork = get_cuda_rng_tracker().fork();
      EXPECT_TRUE(differs_on_slices(at::rand({4}))) << has_seed;
    }
  });
}

TEST(SlicedLayers, KeepTheirValuesUnderZeroInit) {
  run_ranks(4, [](comm::World& world) {
    const auto mpu = std::make_shared<TwoSlices>(world);
    const Training expected = train_whole(2, at::kFloat);
    const Json config = sliced_config(3);
    for (const bool names_mpu : {true, false}) {
      std::shared_ptr<SlicedModel> model;
      {
        zero::InitArguments arguments{.config_dict_or_path = config, .world = world, .max_whole_bytes = 0};
        if (names_mpu) {
          arguments.mpu = mpu;
        } else {
          arguments.data_parallel_group = mpu->get_data_parallel_group();
        }
        const zero::Init init(std::move(arguments));
        model = std::make_shared<SlicedModel>(at::kFloat);
      }
      const auto engine = initialize(model, {.config = config, .mpu = mpu}).engine;
      Training trained;
      train_on(*engine, *mpu, 0, kSteps, trained, at::kFloat);
      expect_whole(*model, trained, expected, 1e-5);
    }
  });
}

TEST(SlicedLayers, TakeWhatAZeroInitOverAllRanksHasOfReplicasAndRefuseItsParts) {
  struct Replica : torch::nn::Module {
    Replica() : bias(register_parameter("bias", at::arange(5, at::kFloat))) {}
    at::Tensor forward(const at::Tensor& x) { return (bias * x).square().sum(); }
    at::Tensor bias;
  };
  run_ranks(4, [](comm::World& world) {
    const auto mpu = std::make_shared<TwoSlices>(world);
    const Json config = sliced_config(3);
    const auto build = [&]<class Model>(std::type_identity<Model>) {
      const zero::Init init({.config_dict_or_path = config, .world = world, .max_whole_bytes = 0});
      return std::make_shared<Model>();
    };
    const auto replica = build(std::type_identity<Replica>());
    const auto engine = initialize(replica, {.config = config, .mpu = mpu}).engine;
    engine->backward((*engine)(at::ones({5})));
    engine->step();
    {
      const zero::GatheredParameters gathered(replica->parameters());
      EXPECT_TRUE(at::allclose(replica->bias.detach().slice(0, 1), at::arange(1, 5) - 0.01));
    }
    struct Part : torch::nn::Module {
      Part() { weight = register_parameter("weight", at::ones({2, 2})); }
      at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight).sum(); }
      at::Tensor weight;
    };
    const auto part = build(std::type_identity<Part>());
    EXPECT_ERROR(UsageError, initialize(part, {.config = config, .mpu = mpu}),
                 "'weight' is a part of the model", "zero::Init over 4 ranks", "pass `mpu` to zero::Init");
  });
}

TEST_P(SlicedLayersAtStage, RefuseCopiesThatDiffer) {
  run_ranks(4, [](comm::World& world) {
    const auto mpu = std::make_shared<TwoSlices>(world);
    const auto model = std::make_shared<SlicedModel>();
    {
      const at::NoGradGuard no_grad;
      model->layers[1]->bias[5] += mpu->get_model_parallel_rank();
    }
    EXPECT_ERROR(UsageError, initialize(model, {.config = sliced_config(GetParam()), .mpu = mpu}),
                 "'layer1.bias' is [6]", "on rank 0 and", "on rank 1", "is_model_parallel_parameter()");
  });
}

// What the log says while it lives.
class LogLines {
 public:
  LogLines()
      : before_(log::set_sink([this](log::Level, const std::string& line) {
          const std::lock_guard lock(mutex_);
          text_ += line + "\n";
        })) {}
  ~LogLines() { log::set_sink(before_); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
  log::Sink before_;
};

TEST_P(SlicedLayersAtStage, SayInASaveWhichCopiesDiffer) {
  const TemporaryFolder folder;
  run_ranks(4, [&](comm::World& world) {
    const auto mpu = std::make_shared<TwoSlices>(world);
    const auto model = std::make_shared<SlicedModel>();
    const auto engine = initialize(model, {.config = sliced_config(GetParam()), .mpu = mpu}).engine;
    {
      const LogLines lines;
      engine->save_checkpoint(folder / "run");
      EXPECT_EQ(lines.text().find("no longer agree"), std::string::npos);
    }
    {
      const zero::GatheredParameters gathered(model->parameters(), /*modifier_rank=*/0);
      const at::NoGradGuard no_grad;
      model->layers[0]->norm[0] += mpu->get_model_parallel_rank();
    }
    const auto expect_warning = [&](const std::function<void()>& save) {
      const LogLines lines;
      save();
      if (world.rank() != 0) return;
      EXPECT_THAT(lines.text(), AllOf(HasSubstr("no longer agree"), HasSubstr("'layer0.norm'"),
                                      HasSubstr("model_parallel_cuda_manual_seed()")));
    };
    expect_warning([&] { engine->save_checkpoint(folder / "run"); });
    expect_warning([&] { engine->save_16bit_model(folder / "weights"); });
  });
}

}  // namespace
}  // namespace deepspeed::testing
