// The code of docs/optimizers.md, compiled and run; a test holds the page against this file.
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>

#include "deepspeed/kernels/adam.h"
#include "deepspeed/kernels/update.h"
#include "deepspeed/optim/torch/deepspeed_optimizers.h"

#include "tests/places/places.h"

namespace deepspeed {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(testing::source_folder() / path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(file) << path;
  return text.str();
}

// With all blanks and line ends as one blank: the page is not indented as this file is.
std::string words_of(const std::string& text) {
  std::istringstream stream(text);
  std::string words;
  for (std::string word; stream >> word;) words += word + " ";
  return words;
}

TEST(OptimizersPage, HasNoCodeButThatOfThisFile) {
  const std::string page = text_of("docs/optimizers.md");
  const std::string code = words_of(text_of("tests/optim/torch/documentation_test.cpp"));
  const std::string fence = "```cpp\n";
  int blocks = 0;
  for (size_t at = page.find(fence); at != std::string::npos; at = page.find(fence, at + 1), ++blocks) {
    const size_t begin = at + fence.size(), end = page.find("```", begin);
    std::istringstream lines(page.substr(begin, end - begin));
    std::string block;
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("#include <")) {
        block += line + "\n";
      } else {  // this file includes it too, in the project's way
        const std::string header = line.substr(10, line.size() - 11);
        EXPECT_NE(code.find("#include \"" + header + "\""), std::string::npos) << header;
      }
    }
    EXPECT_NE(code.find(words_of(block)), std::string::npos) << block;
  }
  EXPECT_EQ(blocks, 4);
}

TEST(OptimizersPage, NamesTheHeadersOfTheKernels) {
  const std::string page = text_of("docs/optimizers.md");
  for (const char* function : {"adam", "update"}) {
    const size_t include = page.find("#include <deepspeed/kernels/" + std::string(function) + ".h>");
    EXPECT_LT(include, page.find("deepspeed::kernels::" + std::string(function) + "(")) << function;
  }
}

TEST(OptimizersPage, StepsAModel) {
  torch::nn::Linear model(4, 3);
  const at::Tensor inputs = at::ones({2, 4}), before = model->weight.detach().clone();
  deepspeed::FusedAdam optimizer(model->parameters(),
                                 deepspeed::FusedAdamOptions().lr(1e-3).weight_decay(0.1));
  const at::Tensor loss = model->forward(inputs).square().mean();
  loss.backward();
  optimizer.step();
  optimizer.zero_grad();
  EXPECT_FALSE(at::equal(model->weight, before));
}

TEST(OptimizersPage, StepsGroups) {
  torch::nn::Linear model(4, 3);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector<at::Tensor>{model->weight});
  groups.emplace_back(std::vector<at::Tensor>{model->bias},
                      std::make_unique<deepspeed::DeepSpeedCPUAdamOptions>(
                          deepspeed::DeepSpeedCPUAdamOptions().lr(1e-2).bias_correction(false)));
  deepspeed::DeepSpeedCPUAdam optimizer(groups, deepspeed::DeepSpeedCPUAdamOptions().weight_decay(0.1));
  EXPECT_EQ(optimizer.param_groups()[1].options().get_lr(), 1e-2);
  model->forward(at::ones({2, 4})).sum().backward();
  optimizer.step();
  EXPECT_EQ(optimizer.state_of(model->bias).step, 1);
}

TEST(OptimizersPage, StepsSubgroups) {
  for (const bool overflowed : {false, true}) {
    const at::Tensor piece = at::ones({5});
    piece.mutable_grad() = at::ones({5});
    deepspeed::DeepSpeedCPUAdam optimizer(std::vector<at::Tensor>{piece});
    optimizer.param_groups()[0].params() = {piece};
    optimizer.step_subgroup(3);
    if (overflowed) optimizer.rollback_subgroup(3);
    EXPECT_EQ(at::equal(piece, at::ones({5})), overflowed);
  }
}

TEST(OptimizersPage, CallsKernels) {
  const at::Tensor weights = at::ones({5}), gradient = at::ones({5}),
                   bf16_weights = at::ones({5}, at::kBFloat16);
  const at::Tensor exp_avg = at::zeros({5}), exp_avg_sq = at::zeros({5});
  deepspeed::kernels::AdamStep step;
  step.lr = 1e-3;
  step.weight_decay = 0.1;
  step.step = 1;              // counts from 1
  step.gradient_scale = 0.5;  // clipping, 1 / loss scale
  deepspeed::kernels::adam({weights, gradient, exp_avg, exp_avg_sq, bf16_weights}, step);
  deepspeed::kernels::adam_rollback({weights, gradient, exp_avg, exp_avg_sq, {}}, step);

  deepspeed::kernels::LionRule lion;
  lion.beta1 = 0.9;
  lion.one_minus_beta1 = 0.1;
  lion.beta2 = 0.99;
  lion.one_minus_beta2 = 0.01;
  lion.lr = 1e-4;
  deepspeed::kernels::update({weights, gradient, bf16_weights, {{"exp_avg", exp_avg}}}, lion);
  EXPECT_TRUE(at::allclose(weights, at::full({5}, 1 - 1e-4)));  // of lion's step
  EXPECT_TRUE(at::equal(bf16_weights, weights.to(at::kBFloat16)));
}

}  // namespace
}  // namespace deepspeed
