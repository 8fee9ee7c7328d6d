// What surrounds the fragments of the pages: `<!-- test: fragment NAME -->` compiles a fragment into the body
// of a test of the class NAME below, whose members are the variables that the fragment speaks of. It runs in
// an empty folder.
#pragma once

#include <csignal>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <gtest/gtest.h>

#include "deepspeed/checkpoint/convert/universal.h"
#include "deepspeed/checkpoint/convert/zero_to_fp32.h"
#include "deepspeed/checkpointing.h"
#include "deepspeed/comm/adopt.h"
#include "deepspeed/comm/log/comms_logger.h"
#include "deepspeed/deepspeed.h"
#include "deepspeed/kernels/adam.h"
#include "deepspeed/kernels/update.h"
#include "deepspeed/ops.h"
#include "deepspeed/pipe.h"

#include "tests/support/temporary_folder.h"

namespace deepspeed_pages {

class EmptyFolder : public ::testing::Test {
 protected:
  EmptyFolder() : before_(std::filesystem::current_path()) { std::filesystem::current_path(folder_.path()); }
  ~EmptyFolder() override { std::filesystem::current_path(before_); }

  deepspeed::testing::TemporaryFolder folder_;

 private:
  std::filesystem::path before_;
};

struct Sizes {
  int64_t inputs = 8;
  int64_t hidden = 16;
};

struct Net : torch::nn::Module {
  explicit Net(const Sizes& sizes = {})
      : in(register_module("in", torch::nn::Linear(sizes.inputs, sizes.hidden))),
        head(register_module("head", torch::nn::Linear(sizes.hidden, 1))) {}
  at::Tensor forward(const at::Tensor& x) { return head(at::gelu(in(x))); }

  torch::nn::Linear in, head;
};
using GPT = Net;

inline at::Tensor generate(Net& model, const at::Tensor& prompt) {
  const at::NoGradGuard no_grad;
  return model.forward(prompt);
}

using Engine = std::shared_ptr<deepspeed::DeepSpeedEngine<Net>>;
inline Engine make_engine(const std::shared_ptr<Net>& model, const deepspeed::Json& config) {
  auto [engine, optimizer, loader, schedule] = deepspeed::initialize(model, {.config = config});
  return engine;
}

/// A model, and ds_config.json, which names `stage`.
template <int stage>
class ModelAtStage : public EmptyFolder {
 protected:
  ModelAtStage() { folder_.write("ds_config.json", config.dump()); }

  deepspeed::Json config = {{"train_batch_size", 8},
                            {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.001}}}}},
                            {"zero_optimization", {{"stage", stage}}}};
  Sizes options, sizes;
  std::shared_ptr<Net> model = std::make_shared<Net>();
  at::Tensor x = at::ones({8, 8}), y = at::ones({8, 1});
};
using Model = ModelAtStage<1>;
using PartitionedModel = ModelAtStage<3>;

/// An engine that is ready for a step.
template <int stage>
class TrainingAtStage : public ModelAtStage<stage> {
 protected:
  TrainingAtStage() { engine->backward(at::mse_loss(engine->forward(this->x), this->y)); }

  Engine engine = make_engine(this->model, this->config);
  std::string directory = "run";
  at::Tensor prompt = this->x;
  std::vector<std::pair<at::Tensor, at::Tensor>> batches = {{this->x, this->y}, {this->x, this->y}};
};
using Training = TrainingAtStage<1>;
using PartitionedTraining = TrainingAtStage<3>;

/// A checkpoint in `run`.
class Checkpoint : public Training {
 protected:
  Checkpoint() {
    engine->step();
    engine->save_checkpoint("run");
  }
};

/// Weights under the names that a program in Python gives them.
class WeightFiles : public Checkpoint {
 protected:
  WeightFiles() {
    using deepspeed::checkpoint::convert_zero_checkpoint_to_fp32_state_dict;
    convert_zero_checkpoint_to_fp32_state_dict("run", "gpt2", {.safe_serialization = true});
    convert_zero_checkpoint_to_fp32_state_dict("run", "run7.pt");
    convert_zero_checkpoint_to_fp32_state_dict("run", "model.safetensors", {.safe_serialization = true});
  }
};

class TwoEngines : public Model {
 protected:
  static at::Tensor criterion(const at::Tensor& a, const at::Tensor& b) { return at::mse_loss(a, b); }

  Engine left = make_engine(std::make_shared<Net>(), config);
  Engine right = make_engine(std::make_shared<Net>(), config);
};

/// Engines that are trained.
class Trainings : public Model {
 protected:
  void train(deepspeed::DeepSpeedEngine<Net>& engine) const {
    engine.backward(at::mse_loss(engine.forward(x), y));
    engine.step();
  }
};

class ActorAndCritic : public Trainings {
 protected:
  Engine actor_engine = make_engine(std::make_shared<Net>(), config);
  Engine critic_engine = make_engine(std::make_shared<Net>(), config);
};

class Phases : public Trainings {
 protected:
  Phases() {
    for (const auto& [name, stage] : {std::pair("pretrain.json", 3), std::pair("finetune.json", 2)}) {
      deepspeed::Json of_phase = config;
      of_phase["zero_optimization"]["stage"] = stage;
      folder_.write(name, of_phase.dump());
    }
  }
};

struct Experts : torch::nn::Module {
  Experts() : first(register_module("first", torch::nn::Linear(4, 4))) {}
  torch::nn::Linear first;
};

class MixtureOfExperts : public EmptyFolder {
 protected:
  struct Mixture : torch::nn::Module {
    Mixture() : experts(register_module("experts", std::make_shared<Experts>())) {}
    std::shared_ptr<Experts> experts;
  };
  std::shared_ptr<Mixture> model = std::make_shared<Mixture>();
};

class Layer : public EmptyFolder {
 protected:
  torch::nn::Linear model{torch::nn::LinearOptions(8, 4)};
  at::Tensor inputs = at::ones({2, 8});
};

class SubGroup : public Layer {
 protected:
  SubGroup() { piece.mutable_grad() = at::ones_like(piece); }

  at::Tensor piece = at::ones({8}).requires_grad_();
  deepspeed::DeepSpeedCPUAdam optimizer{std::vector<at::Tensor>{model->weight}};
  bool overflowed = true;
};

class CommsLog : public EmptyFolder {
 protected:
  CommsLog() { deepspeed::comm::init_distributed(); }
  at::Tensor x = at::ones({4});
};

class GroupOfAScript : public EmptyFolder {
 protected:
  GroupOfAScript() {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    auto options = c10d::ProcessGroupGloo::Options::create();
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    script_group = c10::make_intrusive<c10d::ProcessGroup>(store, 0, 1);
    script_group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO,
                             c10::make_intrusive<c10d::ProcessGroupGloo>(store, 0, 1, options));
  }
  c10::intrusive_ptr<c10d::ProcessGroup> script_group;
};

class FlatTensors : public EmptyFolder {
 protected:
  at::Tensor weights = at::ones({64}), gradient = at::ones({64});
  at::Tensor exp_avg = at::zeros({64}), exp_avg_sq = at::zeros({64});
  at::Tensor bf16_weights = weights.to(at::kBFloat16);
};

}  // namespace deepspeed_pages
