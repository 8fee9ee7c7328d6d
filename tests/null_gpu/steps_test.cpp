// What a step of GPT-2 124M asks of a GPU, counted, against a golden table: a change that adds a launch is
// seen.
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>

#include <ATen/ops/zeros.h>
#include <torch/headeronly/version.h>

#include <gtest/gtest.h>

#include "deepspeed/base/message.h"
#include "deepspeed/deepspeed.h"

#include "examples/gpt2/gpt.h"
#include "tests/null_gpu/null_gpu.h"
#include "tests/places/places.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

constexpr int64_t kSequences = 64;

/// Returns what the third step of an engine asks for, a line each. Names of torch's kernels are left out.
std::string counts_of_a_step(const Json& patch) {
  Json config = {{"train_micro_batch_size_per_gpu", kSequences},
                 {"bf16", {{"enabled", true}}},
                 {"gradient_clipping", 1.0},
                 {"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 1e-4}, {"weight_decay", 0.1}}}}}};
  config.merge_patch(patch);
  const gpt2::GptConfig sizes{.vocabulary = 50304, .context = 1024, .layers = 12, .heads = 12, .width = 768};
  const auto engine = initialize(std::make_shared<gpt2::GPT>(sizes), {.config = config}).engine;
  const at::Tensor tokens =
      at::zeros({kSequences, sizes.context}, at::TensorOptions(at::kLong).device(at::kCUDA));
  for (int step = 0; step < 3; ++step) {
    null_gpu::take_counts();
    engine->backward(engine->forward(tokens, tokens));
    engine->step();
  }
  std::ostringstream lines;
  for (const auto& [kind, number] : null_gpu::take_counts()) {
    if (kind.rfind("kernel ", 0) != 0) lines << "  " << kind << " " << number << "\n";
  }
  return lines.str();
}

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(NullGpuSteps, AskForWhatTheGoldenTableSays) {
  const std::string actual =
      run_ranks_collect(1, [](comm::World&) {
        return "eager\n" + counts_of_a_step(Json::object()) + "cuda_graphs\n" +
               counts_of_a_step({{"cuda_graphs", {{"enabled", true}, {"warmup_steps", 1}}}});
      }).front();
  // Versions of torch differ by a few launches.
  const std::string name = message("null_gpu_steps_", TORCH_VERSION_MAJOR, ".", TORCH_VERSION_MINOR, ".txt");
  const std::string golden = text_of(source_folder() / "tests/golden" / name);
  if (golden != actual) std::ofstream(build_folder() / name) << actual;
  EXPECT_EQ(golden, actual) << "a step asks for other work; if that is meant, copy " << build_folder() / name
                            << " to tests/golden";
}

}  // namespace
}  // namespace deepspeed::testing
