// A load that fails leaves the engine as it was, on all ranks, whatever it is that does not fit.
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <torch/types.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/checkpoint/convert/universal.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/zero_state.h"

#include "tests/engine/make_engine.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::basic;
using testing::error_of;
using ::testing::HasSubstr;
using testing::OddNet;
using testing::run_ranks;
using testing::TemporaryFolder;
using testing::train_step;

/// With a parameter that stays in the file until it is asked for, also in the file of one of two ranks.
class LargeNet : public OddNet {
 public:
  LargeNet() { register_parameter("large", torch::full({60'000}, 0.5)); }
};

using LargeEngine = std::shared_ptr<DeepSpeedEngine<LargeNet>>;

LargeEngine large_engine(const comm::World& world, const Json& config, int num_groups = 1,
                         optim::LrSchedulerSource schedule = nullptr) {
  const auto model = std::make_shared<LargeNet>();
  std::vector<ModelParameters> groups(size_t(num_groups == 1 ? 0 : num_groups));
  if (!groups.empty()) {
    size_t next = 0;
    for (const at::Tensor& param : model->parameters()) {
      if (param.requires_grad()) groups[next++ % groups.size()].params.push_back(param);
    }
  }
  return initialize(model, {.config = config,
                            .model_parameters = groups,
                            .lr_scheduler = std::move(schedule),
                            .world = world})
      .engine;
}

Json config_of(int stage, const char* optimizer = "AdamW", Json patch = Json::object()) {
  Json config = basic({{"optimizer", {{"type", optimizer}, {"params", {{"lr", 0.01}}}}},
                       {"zero_optimization", {{"stage", stage}}},
                       {"scheduler", {{"type", "WarmupLR"}, {"params", {{"warmup_num_steps", 9}}}}},
                       {"log_level", "off"}});
  config.merge_patch(patch);
  return config;
}

/// Everything of this rank that a load may change.
std::string whole_state(LargeEngine& engine) {
  std::string bytes = message(engine->global_steps(), " ", engine->global_samples(), " ",
                              engine->skipped_steps(), " ", engine->micro_steps(), " ", engine->get_lr()[0],
                              " ", engine->loss_scale(), " ", engine->lr_scheduler()->state_dict().dump());
  const auto add = [&](const at::Tensor& tensor) {
    const at::Tensor values = tensor.detach().cpu().contiguous();
    bytes.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
  };
  {
    const zero::GatheredParameters gathered(engine->module().parameters());
    for (const at::Tensor& param : engine->module().parameters()) add(param);
  }
  for (size_t group = 0; group < engine->optimizer()->store().groups().size(); ++group) {
    const zero::GroupState state = engine->optimizer()->state().of(group);
    add(state.master);
    for (const auto& [name, tensor] : state.state.tensors) add(tensor);
    bytes += std::to_string(state.state.step);
  }
  add(device::cpu_rng_state());
  return bytes;
}

/// Trains, and holds what a load that fails must leave.
struct Untouched {
  explicit Untouched(LargeEngine engine) : engine(std::move(engine)) {
    for (int i = 0; i < 2; ++i) train_step(*this->engine, 40 + i);
    before = whole_state(this->engine);
  }
  /// The complaint of the load.
  std::string load(const fs::path& folder, const LoadOptions& options = {}) {
    const std::string text = error_of<Error>([&] { engine->load_checkpoint(folder, options); });
    EXPECT_EQ(whole_state(engine), before) << text;
    train_step(*engine, 50);  // it goes on
    return text;
  }
  LargeEngine engine;
  std::string before;
};

void on_one_rank(comm::World& world, const std::function<void()>& change) {
  world.group().barrier();
  if (world.rank() == 0) change();
  world.group().barrier();
}

void flip_byte(const fs::path& file, uint64_t offset) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(int64_t(offset));
  const char changed = char(stream.get() ^ 1);
  stream.seekp(int64_t(offset));
  stream.put(changed);
}

class FailedLoad : public ::testing::TestWithParam<int> {
 protected:
  /// A checkpoint of AdamW after three steps.
  void save(comm::World& world, const std::string& tag = "saved", const char* optimizer = "AdamW") {
    const auto engine = large_engine(world, config_of(GetParam(), optimizer));
    for (int i = 0; i < 3; ++i) train_step(*engine, i);
    engine->save_checkpoint(folder_.path(), {.tag = tag});
  }
  fs::path tag() const { return folder_ / "saved"; }

  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Stages, FailedLoad, ::testing::Values(0, 1, 2, 3));

TEST_P(FailedLoad, ChangesNothingForAnotherOptimizersStatesAndNamesTheWayOut) {
  run_ranks(2, [&](comm::World& world) {
    save(world);
    for (const char* optimizer : {"Lion", "Adagrad"}) {
      Untouched other(large_engine(world, config_of(GetParam(), optimizer)));
      EXPECT_THAT(other.load(folder_.path()),
                  AllOf(HasSubstr("exp_avg"), HasSubstr("load_optimizer_states = false")));
      other.engine->load_checkpoint(folder_.path(), {.load_optimizer_states = false});
      EXPECT_EQ(other.engine->global_steps(), 3);
    }
  });
}

TEST_P(FailedLoad, ChangesNothingForAnotherNumberOfGroupsAndNamesTheWayOut) {
  run_ranks(2, [&](comm::World& world) {
    save(world);
    Untouched other(large_engine(world, config_of(GetParam()), 2));
    EXPECT_THAT(other.load(folder_.path()),
                AllOf(HasSubstr("group"), HasSubstr("load_optimizer_states = false")));
  });
}

TEST_P(FailedLoad, ChangesNothingIfAScheduleRefusesOnOneRank) {
  struct Strict {
    bool refuses = false;
    int64_t steps = 0;
    double get_lr() const { return 0.5 / double(1 + steps); }
    void step() { ++steps; }
    Json state_dict() const { return {{"steps", steps}}; }
    void load_state_dict(const Json& state) {
      if (refuses && state.at("steps") == 3) raise<UsageError>("not this state");
      steps = state.at("steps");
    }
  };
  run_ranks(2, [&](comm::World& world) {
    Json config = config_of(GetParam());
    config.erase("scheduler");
    const auto make = [&](bool refuses) {
      return large_engine(world, config, 1, std::make_shared<Strict>(Strict{refuses}));
    };
    const auto source = make(false);
    for (int i = 0; i < 3; ++i) train_step(*source, i);
    source->save_checkpoint(folder_.path());
    Untouched other(make(world.rank() == 1));
    EXPECT_THAT(other.load(folder_.path()), HasSubstr("not this state"));
    // And of a schedule of another kind.
    Untouched warmup(large_engine(world, config_of(GetParam())));
    EXPECT_THAT(warmup.load(folder_.path()), HasSubstr("last_batch_iteration"));
  });
}

TEST_P(FailedLoad, ChangesNothingForADamagedFile) {
  run_ranks(2, [&](comm::World& world) {
    save(world);
    Untouched other(large_engine(world, config_of(GetParam())));
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(tag())) {
      if (entry.path().extension() == ".pt") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    ASSERT_GE(files.size(), 3u);
    world.group().barrier();
    for (const fs::path& file : files) {
      for (const double place : {0.3, 0.6, 0.95}) {
        const auto byte = uint64_t(place * double(fs::file_size(file)));
        other.before = whole_state(other.engine);
        on_one_rank(world, [&] { flip_byte(file, byte); });
        EXPECT_THAT(other.load(folder_.path()), HasSubstr(file.filename().string())) << byte;
        on_one_rank(world, [&] { flip_byte(file, byte); });
      }
    }
    other.engine->load_checkpoint(folder_.path());
    EXPECT_EQ(other.engine->global_steps(), 3);
  });
}

TEST_P(FailedLoad, ChangesNothingForAMissingOrForeignFile) {
  run_ranks(2, [&](comm::World& world) {
    save(world);
    Untouched other(large_engine(world, config_of(GetParam())));
    // Without a manifest, as a checkpoint of DeepSpeed.
    const fs::path run_file = checkpoint::rng_states_path(folder_.path(), "saved", 1);
    on_one_rank(world, [&] {
      fs::remove(tag() / "manifest.json");
      fs::copy_file(run_file, folder_ / "kept.pt");
      std::ofstream(run_file, std::ios::binary) << "no archive";
    });
    EXPECT_THAT(other.load(folder_.path()), HasSubstr(run_file.filename().string()));
    on_one_rank(world,
                [&] { fs::copy_file(folder_ / "kept.pt", run_file, fs::copy_options::overwrite_existing); });
    if (GetParam() == 0) return;  // whose optimizer is in the model file
    other.before = whole_state(other.engine);
    on_one_rank(world, [&] { fs::remove(checkpoint::optim_states_path(folder_.path(), "saved", 1)); });
    EXPECT_THAT(other.load(folder_.path()), HasSubstr("the optimizer files of 1 ranks, expected 2"));
  });
}

TEST_P(FailedLoad, ChangesNothingIfTheProgramRefusesAClientStateOnOneRank) {
  run_ranks(2, [&](comm::World& world) {
    save(world);
    Untouched other(large_engine(world, config_of(GetParam())));
    const LoadOptions refusing = {.check_client_state = [&](const checkpoint::Dict&) {
      if (world.rank() == 1) raise<UsageError>("of another experiment");
    }};
    EXPECT_THAT(other.load(folder_.path(), refusing), HasSubstr("of another experiment"));
    size_t num_keys = 1;
    other.engine->load_checkpoint(folder_.path(), {.check_client_state = [&](const checkpoint::Dict& state) {
                                    num_keys = state.size();
                                  }});
    EXPECT_EQ(num_keys, 0u);
    EXPECT_EQ(other.engine->global_steps(), 3);
  });
}

TEST_P(FailedLoad, IsReportedUntilACheckpointIsLoadedIfItFailedWhileWriting) {
  run_ranks(2, [&](comm::World& world) {
    save(world);
    const auto engine = large_engine(world, config_of(GetParam()));
    train_step(*engine, 30);
    const LoadOptions failing = {.custom_load_fn = [&](const NamedTensors&) {
      if (world.rank() == 1) raise<UsageError>("it fails");
    }};
    EXPECT_THAT(error_of<Error>([&] { engine->load_checkpoint(folder_.path(), failing); }),
                HasSubstr("it fails"));
    EXPECT_EQ(engine->global_steps(), 1);
    for (const std::string& complaint :
         {error_of<UsageError>([&] { train_step(*engine, 31); }),
          error_of<UsageError>([&] { engine->step(); }),
          error_of<UsageError>([&] { engine->save_checkpoint(folder_.path(), {.tag = "bad"}); })}) {
      EXPECT_THAT(complaint, AllOf(HasSubstr("holds parts of a checkpoint"), HasSubstr("it fails")));
    }
    engine->load_checkpoint(folder_.path());
    train_step(*engine, 31);
    EXPECT_EQ(engine->global_steps(), 4);
  });
}

TEST_P(FailedLoad, LosesNoGradientInTheMiddleOfAnAccumulation) {
  run_ranks(2, [&](comm::World& world) {
    save(world, "saved", "Lion");
    const auto make = [&] {
      auto engine = large_engine(world, config_of(GetParam(), "AdamW", {{"gradient_accumulation_steps", 2}}));
      train_step(*engine, 0);
      return engine;
    };
    const auto straight = make();
    const auto interrupted = make();
    EXPECT_ERROR(CheckpointError, interrupted->load_checkpoint(folder_.path()),
                 "parameter group 0 are not those of FusedAdam", "holds no tensor 'exp_avg_sq'",
                 "load_optimizer_states = false");
    train_step(*straight, 7);
    train_step(*interrupted, 7);
    EXPECT_EQ(interrupted->global_steps(), 1);
    EXPECT_TRUE(interrupted->optimizer()->state().master(0).equal(straight->optimizer()->state().master(0)));
  });
}

TEST(FailedLoadElsewhere, ChangesNothingInOffloadedStates) {
  const TemporaryFolder folder, swap;
  run_ranks(2, [&](comm::World& world) {
    for (const int stage : {2, 3}) {
      for (const char* device : {"cpu", "nvme"}) {
        SCOPED_TRACE(message("stage ", stage, " ", device));
        const Json place = {{"zero_optimization",
                             {{"offload_optimizer", {{"device", device}, {"nvme_path", swap.string()}}}}}};
        const auto source = large_engine(world, config_of(stage, "AdamW", place));
        for (int i = 0; i < 3; ++i) train_step(*source, i);
        const fs::path path = folder.path() / message(stage, device);
        source->save_checkpoint(path, {.tag = "saved"});
        Untouched lion(large_engine(world, config_of(stage, "Lion", place)));
        EXPECT_THAT(lion.load(path), HasSubstr("load_optimizer_states = false"));
        Untouched other(large_engine(world, config_of(stage, "AdamW", place)));
        const fs::path file = checkpoint::optim_states_path(path, "saved", 1);
        on_one_rank(world, [&] { flip_byte(file, fs::file_size(file) * 6 / 10); });
        EXPECT_THAT(other.load(path), HasSubstr(file.filename().string()));
      }
    }
  });
}

TEST(FailedLoadElsewhere, ChangesNothingForAUniversalCheckpoint) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto source = large_engine(world, config_of(1));
    for (int i = 0; i < 3; ++i) train_step(*source, i);
    source->save_checkpoint(folder.path(), {.tag = "saved"});
    on_one_rank(world, [&] { checkpoint::convert_to_universal(folder / "saved", folder / "universal"); });
    const Json universal = {{"checkpoint", {{"load_universal", true}}}};
    for (const int stage : {0, 1, 3}) {
      Untouched lion(large_engine(world, config_of(stage, "Lion", universal)));
      EXPECT_THAT(lion.load(folder.path()), HasSubstr("load_optimizer_states = false")) << stage;
    }
    const fs::path file = checkpoint::universal_state_path(folder / "universal", "large", "exp_avg_sq");
    on_one_rank(world, [&] { flip_byte(file, fs::file_size(file) / 2); });
    for (const int stage : {0, 1, 3}) {
      Untouched other(large_engine(world, config_of(stage, "AdamW", universal)));
      EXPECT_THAT(other.load(folder.path()), HasSubstr("exp_avg_sq")) << stage;
    }
  });
}

TEST(FailedLoadElsewhere, ChangesNothingInsideGatheredParameters) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto source = large_engine(world, config_of(3));
    for (int i = 0; i < 3; ++i) train_step(*source, i);
    source->save_checkpoint(folder.path());
    Untouched other(large_engine(world, config_of(3)));
    const std::vector<NamedTensor> state = [&] {
      std::vector<NamedTensor> values;
      for (const auto& entry : other.engine->module_state_dict())
        values.push_back({entry.name, torch::zeros(entry.tensor.sizes())});
      return values;
    }();
    {
      // The last one: those before it could be set.
      const zero::GatheredParameters gathered({other.engine->module().named_parameters()["large"]});
      EXPECT_ERROR(UsageError, other.engine->load_checkpoint(folder.path()),
                   "parameter 'large' got other values while it is gathered",
                   "leave zero::GatheredParameters first");
      EXPECT_ERROR(UsageError, other.engine->load_module_state_dict(state),
                   "parameter 'large' got other values", "leave zero::GatheredParameters first");
    }
    EXPECT_EQ(whole_state(other.engine), other.before);
  });
}

TEST(LoadModuleStateDict, ChangesNothingIfOneValueCannotBeTaken) {
  run_ranks(1, [](comm::World& world) {
    Untouched other(large_engine(world, config_of(0)));
    const std::vector<NamedTensor> own = other.engine->module_state_dict();
    for (const at::Tensor& bad : {torch::zeros({60'000}, at::kComplexFloat), at::Tensor(),
                                  torch::zeros({60'000}, at::TensorOptions().device(at::kMeta))}) {
      std::vector<NamedTensor> state;
      for (const auto& entry : own)
        state.push_back({entry.name, entry.name == "large" ? bad : torch::zeros(entry.tensor.sizes())});
      EXPECT_THAT(error_of<UsageError>([&] { other.engine->load_module_state_dict(state); }),
                  HasSubstr("'large'"));
      EXPECT_EQ(whole_state(other.engine), other.before);
    }
  });
}

}  // namespace
}  // namespace deepspeed
