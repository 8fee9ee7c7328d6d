// Fine-tuning of adapters: in this process for what the weights do, and as a program that the launcher
// starts.
#include "lora.h"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include <torch/nn/functional/loss.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/initialize.h"

#include "tests/places/places.h"
#include "tests/support/run_ranks.h"

namespace lora {
namespace {

namespace fs = std::filesystem;
using deepspeed::Json;
using testing::HasSubstr;
using namespace std::chrono_literals;

Json config_of(int stage) {
  return {{"train_micro_batch_size_per_gpu", 8},
          {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 0.01}}}}},
          {"zero_optimization", {{"stage", stage}}},
          {"seed", 7}};
}

std::map<std::string, at::Tensor> copies_of(Network& network, bool adapters) {
  std::map<std::string, at::Tensor> copies;
  for (const auto& item : network.named_parameters()) {
    if (item.value().requires_grad() == adapters) copies.emplace(item.key(), item.value().detach().clone());
  }
  return copies;
}

TEST(Lora, TrainsOnlyTheAdaptersAtEveryStage) {
  deepspeed::testing::run_ranks(2, [](deepspeed::comm::World& world) {
    std::vector<double> losses_of_stage_0;
    for (const int stage : {0, 1, 2}) {
      deepspeed::manual_seed(3);
      auto model = std::make_shared<Network>(2);
      const auto base = copies_of(*model, false), adapters = copies_of(*model, true);
      auto [engine, optimizer, loader, scheduler] =
          deepspeed::initialize(model, {.config = config_of(stage), .world = world});
      std::vector<double> losses;
      for (int step = 0; step < 20; ++step) {
        const auto inputs = at::linspace(-1, 1, 8 * 16).view({8, 16}) * (world.rank() + 1);
        const auto loss = torch::nn::functional::mse_loss(engine->forward(inputs), at::ones({8, 4}));
        losses.push_back(loss.item<double>());
        engine->backward(loss);
        engine->step();
      }
      EXPECT_LT(losses.back(), 0.5 * losses.front());
      for (const auto& [name, tensor] : copies_of(*model, false)) {
        EXPECT_TRUE(tensor.equal(base.at(name))) << name;
      }
      for (const auto& [name, tensor] : copies_of(*model, true)) {
        EXPECT_FALSE(tensor.equal(adapters.at(name))) << name;
      }
      EXPECT_EQ(engine->module_state_dict(/*exclude_frozen_parameters=*/true).size(), 4U);
      if (stage == 0) losses_of_stage_0 = losses;
      EXPECT_EQ(losses, losses_of_stage_0) << "stage " << stage;
    }
  });
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Lines "step N loss L" by N.
std::map<int, std::string> losses_in(const std::string& text) {
  std::map<int, std::string> losses;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string step, loss, value;
    int number = 0;
    if (words >> step >> number >> loss >> value && step == "step") losses[number] = value;
  }
  return losses;
}

struct LoraProgram : testing::Test {
  fs::path folder = fs::temp_directory_path() / ("lora_test." + std::to_string(getpid()));
  pid_t launcher = 0;

  void SetUp() override {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  void TearDown() override {
    if (launcher > 0) {
      ::kill(launcher, SIGKILL);
      ::waitpid(launcher, nullptr, 0);
    }
    fs::remove_all(folder);
  }

  std::string write_config(int stage) {
    const fs::path path = folder / ("config" + std::to_string(stage) + ".json");
    std::ofstream(path) << config_of(stage).dump();
    return path;
  }

  /// Starts two ranks of the example; their output goes to the folder's file `name`.
  void start(const std::string& name, int stage, std::vector<std::string> arguments) {
    std::vector<std::string> words = {(deepspeed::testing::build_folder() / "bin/deepspeed").string(),
                                      "--num_procs",
                                      "2",
                                      (deepspeed::testing::build_folder() / "examples/lora").string(),
                                      "--deepspeed_config",
                                      write_config(stage)};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    launcher = ::fork();
    ASSERT_GE(launcher, 0);
    if (launcher > 0) return;
    ::signal(SIGTERM, SIG_DFL);
    const int file = ::open((folder / name).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }

  int wait() {
    int status = 0;
    ::waitpid(std::exchange(launcher, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::string run(const std::string& name, int stage, const std::vector<std::string>& arguments) {
    start(name, stage, arguments);
    const int code = wait();
    const std::string text = read_text(folder / name);
    EXPECT_EQ(code, 0) << text;
    return text;
  }
};

std::string final_loss(const std::string& text) {
  const std::string label = "loss on all data ";
  const size_t place = text.find(label);
  return place == std::string::npos ? "none in " + text : text.substr(place + label.size(), 8);
}

TEST_F(LoraProgram, SavesOnlyTheAdaptersAndLoadsThemAtEveryStage) {
  const std::string untrained = run("before", 0, {"--steps", "0"});
  for (const int stage : {0, 1, 2}) {
    const std::string save_dir = folder / ("stage" + std::to_string(stage));
    const std::string trained = run("train", stage, {"--steps", "40", "--save_dir", save_dir});
    EXPECT_LT(std::stod(final_loss(trained)), 0.9 * std::stod(final_loss(untrained)));

    const auto adapters = deepspeed::checkpoint::read_torch_archive(fs::path(save_dir) / "adapters.bin");
    std::vector<std::string> names;
    for (const auto& [name, tensor] : adapters.as_dict().items()) names.push_back(name.as_string());
    EXPECT_THAT(names,
                testing::UnorderedElementsAre("hidden.lora_a", "hidden.lora_b", "out.lora_a", "out.lora_b"));
    const auto states = deepspeed::checkpoint::read_torch_archive(fs::path(save_dir) / "global_step40" /
                                                                  "mp_rank_00_model_states.pt");
    EXPECT_EQ(states.as_dict().at("module").as_dict().size(), 4U);

    // With a fresh base and the file: the base of the run has not changed, and nothing is missing.
    const std::string loaded = run("load", stage, {"--steps", "0", "--adapters", save_dir + "/adapters.bin"});
    EXPECT_EQ(final_loss(loaded), final_loss(trained));
    const std::string resumed = run("resume", stage, {"--steps", "40", "--resume", save_dir});
    EXPECT_EQ(final_loss(resumed), final_loss(trained));
  }
}

TEST_F(LoraProgram, SavesAtASigtermAndResumesWithTheSameLosses) {
  const std::string save_dir = folder / "preempted";
  start("first", 1, {"--steps", "1000000", "--save_dir", save_dir});
  for (int i = 0; i < 600 && losses_in(read_text(folder / "first")).size() < 10; ++i) {
    std::this_thread::sleep_for(50ms);
  }
  ::kill(launcher, SIGTERM);
  EXPECT_EQ(wait(), 128 + SIGTERM);  // the launcher's answer to a signal, whatever the ranks do
  const std::string first = read_text(folder / "first");
  EXPECT_THAT(first, HasSubstr("rank 0 exit code 0, rank 1 exit code 0"));
  const auto before = losses_in(first);
  ASSERT_GE(before.size(), 10U) << first;
  const int last_step = before.rbegin()->first;
  EXPECT_EQ(read_text(fs::path(save_dir) / "latest"), "global_step" + std::to_string(last_step));

  const std::string steps = std::to_string(last_step + 40);
  const auto after = losses_in(run("second", 1, {"--steps", steps, "--resume", save_dir}));
  const auto whole = losses_in(run("whole", 1, {"--steps", steps}));
  EXPECT_EQ(after.size(), 40U);
  std::map<int, std::string> joined = before;
  joined.insert(after.begin(), after.end());
  EXPECT_EQ(joined, whole);
}

}  // namespace
}  // namespace lora
