// A resumed run equals an uninterrupted one, bit for bit: weights, moments, scaler, schedule, dropout and
// data order.
#include <cstdlib>
#include <filesystem>

#include <torch/types.h>

#include <gtest/gtest.h>

#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/initialize.h"
#include "deepspeed/precision/loss_scaler.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/zero_state.h"

#include "tests/support/error_of.h"
#include "tests/support/odd_net.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/test_device.h"

namespace deepspeed::testing {
namespace {

struct OddPair {
  at::Tensor inputs, targets;
};

struct OddSamples {
  size_t size() const { return 37; }  // not a multiple of anything
  OddPair get(size_t index) const {
    auto [inputs, targets] = odd_sample(static_cast<int64_t>(index));
    return {inputs, targets};
  }
};

Json resume_config(int stage, const std::string& precision) {
  Json config = {{"train_micro_batch_size_per_gpu", 2},
                 {"gradient_accumulation_steps", 2},
                 {"gradient_clipping", 0.5},
                 {"seed", 17},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
                 {"scheduler", {{"type", "WarmupLR"}, {"params", {{"warmup_num_steps", 9}}}}},
                 {"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 150}}}};
  if (precision != "fp32") config[precision] = {{"enabled", true}};
  if (precision == "fp16") config["fp16"]["loss_scale_window"] = 3;
  return config;
}

struct Session {
  explicit Session(comm::World& world, const Json& config) {
    auto model = std::make_shared<OddNet>(/*dropout=*/0.3);
    const auto made = initialize(model, OddSamples{}, {.config = config, .world = world});
    engine = made.engine;
    loader = made.training_dataloader;
    batches.emplace(loader);
  }

  // Losses of `steps` optimizer steps, as text with every bit.
  std::string train(int64_t steps) {
    std::string losses;
    const int64_t last = engine->global_steps() + steps;
    while (engine->global_steps() < last) {
      OddPair& batch = batches->next();
      const auto type = engine->module().parameters().front().scalar_type();
      const at::Tensor loss =
          engine->forward(batch.inputs.to(test_device(), type), batch.targets.to(test_device()));
      engine->backward(loss);
      engine->step();
      losses += message(std::hexfloat, loss.item<double>(), " ", engine->get_lr()[0], " ",
                        engine->loss_scale(), "\n");
    }
    return losses;
  }

  std::string weights() {
    std::string text;
    const zero::GatheredParameters gathered(engine->module().parameters());
    for (const auto& param : engine->module().parameters()) {
      const at::Tensor values = param.detach().to(at::kCPU, at::kFloat).contiguous();
      text.append(static_cast<const char*>(values.const_data_ptr()), values.nbytes());
    }
    return text;
  }

  std::shared_ptr<DeepSpeedEngine<OddNet>> engine;
  std::shared_ptr<DeepSpeedDataLoader<OddSamples>> loader;
  std::optional<RepeatingLoader<DeepSpeedDataLoader<OddSamples>>> batches;
};

// Stage, ranks, precision, home of the optimizer.
class Resume : public ::testing::TestWithParam<std::tuple<int, int, const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Matrix, Resume,
                         ::testing::Values(std::tuple(0, 1, "fp32", "none"), std::tuple(0, 2, "fp32", "none"),
                                           std::tuple(1, 2, "fp32", "none"), std::tuple(2, 2, "fp32", "none"),
                                           std::tuple(2, 3, "fp32", "none"), std::tuple(0, 2, "fp16", "none"),
                                           std::tuple(1, 2, "fp16", "none"), std::tuple(2, 2, "bf16", "none"),
                                           std::tuple(3, 1, "fp32", "none"), std::tuple(3, 3, "fp32", "none"),
                                           std::tuple(3, 2, "fp16", "none"), std::tuple(3, 2, "bf16", "none"),
                                           std::tuple(3, 2, "bf16", "cpu")));

TEST_P(Resume, EqualsAnUninterruptedRunBitForBit) {
  const auto [stage, world_size, precision, home] = GetParam();
  Json config = resume_config(stage, precision);
  if (home != std::string("none")) config["zero_optimization"]["offload_optimizer"] = {{"device", home}};
  const TemporaryFolder folder;
  const auto straight = run_ranks_collect(world_size, [&, world_size = world_size](comm::World& world) {
    Session session(world, config);
    session.train(7);
    session.engine->save_checkpoint(folder.path(), {.tag = "", .client_state = {{"note", "from step 7"}}});
    const std::string losses = session.train(8);
    return losses + session.weights();
  });
  const auto resumed = run_ranks_collect(world_size, [&](comm::World& world) {
    Session session(world, config);
    session.train(3);  // whatever happened before a load must not matter
    const LoadResult loaded = session.engine->load_checkpoint(folder.path());
    EXPECT_EQ(loaded.client_state.at("note").as_string(), "from step 7");
    EXPECT_EQ(session.engine->global_steps(), 7);
    const std::string losses = session.train(8);
    return losses + session.weights();
  });
  EXPECT_EQ(straight, resumed);
}

TEST(ResumedMasters, AreThoseOfTheFileUnlessTheModelsAreAskedFor) {
  Json config = resume_config(1, "bf16");
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    Session session(world, config);
    session.train(5);
    session.engine->save_checkpoint(folder.path());
    const at::Tensor master = session.engine->optimizer()->state().master(0).clone();
    const at::Tensor rounded = master.to(at::kBFloat16).to(at::kFloat);
    EXPECT_FALSE(at::equal(master, rounded));
    for (const bool from_fp32 : {true, false}) {
      config["zero_optimization"]["load_from_fp32_weights"] = from_fp32;
      Session resumed(world, config);
      resumed.engine->load_checkpoint(folder.path());
      EXPECT_TRUE(at::equal(resumed.engine->optimizer()->state().master(0), from_fp32 ? master : rounded))
          << from_fp32;
    }
  });
}

// What the checkpoint's masters are in the precision of the engine, at any stage.
TEST(ResumedMasters, GiveTheWeightsOfAnEngineInAnotherPrecision) {
  for (const auto& [from, from_stage] :
       {std::pair("bf16", 0), std::pair("bf16", 1), std::pair("fp16", 2), std::pair("bf16", 3)}) {
    const TemporaryFolder folder;
    const Json saving = resume_config(from_stage, from);
    run_ranks(2, [&](comm::World& world) {
      Session session(world, saving);
      session.train(5);
      session.engine->save_checkpoint(folder.path());
      const at::Tensor weight = session.engine->module().named_parameters()["first.weight"];
      const at::Tensor master = safe_get_full_fp32_param(*session.engine, weight);
      const at::Tensor rounded = master.to(weight.scalar_type()).to(at::kFloat);
      EXPECT_FALSE(at::equal(master, rounded));
      for (const std::string to : {"fp32", "fp16"}) {
        for (const int stage : {0, 1, 2, 3}) {
          for (const bool from_fp32 : {true, false}) {
            const std::string where = message(from, " ", saving["zero_optimization"]["stage"].dump(), " -> ",
                                              to, " ", stage, " ", from_fp32);
            Json config = resume_config(stage, to);
            config["zero_optimization"]["load_from_fp32_weights"] = from_fp32;
            Session resumed(world, config);
            resumed.engine->load_checkpoint(folder.path());
            const at::Tensor own = resumed.engine->module().named_parameters()["first.weight"];
            // Stage 3 saves masters alone.
            const bool has_them = from_fp32 || saving["zero_optimization"]["stage"] == 3;
            const at::Tensor& expected = has_them ? master : rounded;
            EXPECT_TRUE(
                at::equal(safe_get_full_fp32_param(*resumed.engine, own),
                          to == "fp16" && !has_them ? expected.to(at::kHalf).to(at::kFloat) : expected))
                << where;
            const zero::GatheredParameters gathered({own});
            EXPECT_TRUE(at::equal(own, expected.to(own.scalar_type()))) << where;
          }
        }
      }
    });
  }
}

class ResumeWithWholeParameters : public ::testing::TestWithParam<std::tuple<const char*, int, int>> {};
INSTANTIATE_TEST_SUITE_P(Matrix, ResumeWithWholeParameters,
                         ::testing::Values(std::tuple("Lamb", 1, 3), std::tuple("Lamb", 2, 2),
                                           std::tuple("Muon", 0, 2), std::tuple("Muon", 1, 2),
                                           std::tuple("Muon", 2, 3), std::tuple("Lamb", 3, 2),
                                           std::tuple("Muon", 3, 3)));
INSTANTIATE_TEST_SUITE_P(OfTorch, ResumeWithWholeParameters, ::testing::Values(std::tuple("RMSprop", 2, 2)));

TEST_P(ResumeWithWholeParameters, EqualsAnUninterruptedRunBitForBit) {
  const auto [type, stage, world_size] = GetParam();
  Json config = resume_config(stage, "fp32");
  config["optimizer"] = {{"type", type}, {"params", {{"lr", 0.01}}}};
  config["zero_allow_untested_optimizer"] = true;
  const TemporaryFolder folder;
  const auto straight = run_ranks_collect(world_size, [&](comm::World& world) {
    Session session(world, config);
    session.train(3);
    session.engine->save_checkpoint(folder.path());
    return session.train(4) + session.weights();
  });
  const auto resumed = run_ranks_collect(world_size, [&](comm::World& world) {
    Session session(world, config);
    session.train(1);
    session.engine->load_checkpoint(folder.path());
    return session.train(4) + session.weights();
  });
  EXPECT_EQ(straight, resumed);
  if (stage == 0) return;
  // On another number of ranks the partitions cut other parameters; the state is the same.
  const auto moved = run_ranks_collect(world_size + 1, [&](comm::World& world) {
    Session session(world, config);
    session.engine->load_checkpoint(folder.path());
    return message(session.engine->memory().optimizer_states > 0, session.weights());
  });
  const auto still = run_ranks_collect(world_size, [&](comm::World& world) {
    Session session(world, config);
    session.engine->load_checkpoint(folder.path());
    return message(true, session.weights());
  });
  EXPECT_EQ(moved.front(), still.front());
}

// fp32 weights under fp16 autocast: a scaler without masters.
TEST(Resume, KeepsTheScalerOfAutocast) {
  for (const int stage : {0, 1}) {
    const TemporaryFolder folder;
    Json config = resume_config(stage, "fp32");
    config["torch_autocast"] = {{"enabled", true}, {"dtype", "fp16"}};
    config["log_level"] = "error";
    run_ranks(1, [&](comm::World& world) {
      Session session(world, config);
      auto& scaler = dynamic_cast<precision::DynamicLossScaler&>(session.engine->optimizer()->loss_scaler());
      session.train(2);
      scaler.set_state({1024.0, 77, 5, 1});
      session.engine->save_checkpoint(folder.path());
      scaler.set_state({8.0, 1, 0, 1});
      session.engine->load_checkpoint(folder.path());
      EXPECT_EQ(session.engine->loss_scale(), 1024.0) << "stage " << stage;
      EXPECT_EQ(scaler.state().cur_iter, 77);
      EXPECT_EQ(scaler.state().last_overflow_iter, 5);
    });
  }
}

TEST(Resume, FindsNoCheckpointWithoutLatest) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World& world) {
    Session session(world, resume_config(0, "fp32"));
    EXPECT_TRUE(session.engine->load_checkpoint(folder.path()).path.empty());
  });
}

TEST(Resume, NamesWhatDoesNotFit) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    Session session(world, resume_config(1, "fp32"));
    session.train(1);
    session.engine->save_checkpoint(folder.path());
    std::filesystem::remove(folder / "global_step1/zero_pp_rank_1_mp_rank_00_optim_states.pt");
    EXPECT_ERROR(CheckpointError, session.engine->load_checkpoint(folder.path()), "is missing");
  });
}

TEST(Resume, ContinuesAtAnotherWorldSizeAndZeroStage) {
  const TemporaryFolder folder;
  Json config = resume_config(1, "fp32");
  config["train_batch_size"] = 12;
  config["gradient_accumulation_steps"] = 1;
  config.erase("train_micro_batch_size_per_gpu");
  run_ranks(2, [&](comm::World& world) {
    Session session(world, config);
    session.train(4);
    session.engine->save_checkpoint(folder.path());
  });
  std::vector<std::string> weights;
  for (const int world_size : {1, 2, 3, 4}) {
    for (const int stage : {world_size % 2 + 1, 3}) {
      Json other = config;
      other["zero_optimization"]["stage"] = stage;
      weights.push_back(run_ranks_collect(world_size, [&](comm::World& world) {
                          Session session(world, other);
                          session.engine->load_checkpoint(folder.path());
                          return session.weights();
                        }).front());
      EXPECT_EQ(weights.back(), weights.front()) << "world " << world_size << " stage " << stage;
    }
  }
}

// The step after the load uses all states.
TEST(Resume, ContinuesFromStage3AtAnotherWorldSizeAndZeroStage) {
  for (const std::string precision : {"fp32", "bf16"}) {
    const TemporaryFolder folder;
    Json config = resume_config(3, precision);
    config["train_batch_size"] = 12;
    config["gradient_accumulation_steps"] = 1;
    config["zero_optimization"]["sub_group_size"] = 60;
    config.erase("train_micro_batch_size_per_gpu");
    const std::vector<std::string> ranks = run_ranks_collect(2, [&](comm::World& world) {
      Session session(world, config);
      session.train(4);
      session.engine->save_checkpoint(folder.path());
      return session.weights();
    });
    const std::string saved = ranks.front();
    for (const char* name :
         {"zero_pp_rank_0_mp_rank_00_model_states.pt", "zero_pp_rank_1_mp_rank_00_model_states.pt"}) {
      EXPECT_TRUE(std::filesystem::exists(folder / "global_step4" / name)) << name;
    }
    for (const int stage : {0, 1, 2, 3}) {
      for (const int world_size : {1, 2, 3}) {
        Json other = config;
        other["zero_optimization"]["stage"] = stage;
        const auto weights = run_ranks_collect(world_size, [&](comm::World& world) {
          Session session(world, other);
          session.engine->load_checkpoint(folder.path());
          EXPECT_EQ(session.engine->global_steps(), 4);
          return session.weights();
        });
        EXPECT_EQ(weights.front(), saved) << precision << " stage " << stage << " world " << world_size;
      }
    }
    // The weights alone.
    const auto weights = run_ranks_collect(3, [&](comm::World& world) {
      Session session(world, config);
      session.engine->load_checkpoint(folder.path(), {.load_optimizer_states = false});
      return session.weights();
    });
    EXPECT_EQ(weights.front(), saved) << precision;
  }
}

}  // namespace
}  // namespace deepspeed::testing
