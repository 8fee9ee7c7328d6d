// Which embeddings have sparse gradients is in a checkpoint, and an engine that loads it takes that over.
#include <memory>

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/initialize.h"

#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

struct WordsAndLinear : torch::nn::Module {
  at::Tensor forward(const at::Tensor& tokens) { return out(words(tokens) + bags(tokens)).mean(); }
  torch::nn::Embedding words{register_module("words", torch::nn::Embedding(5, 6))};
  torch::nn::EmbeddingBag bags{register_module("bags", torch::nn::EmbeddingBag(3, 6))};
  torch::nn::Linear out{register_module("out", torch::nn::Linear(6, 1))};
};

struct OnlyLinear : torch::nn::Module {
  at::Tensor forward(const at::Tensor& inputs) { return out(inputs).mean(); }
  torch::nn::Linear out{register_module("out", torch::nn::Linear(6, 1))};
};

template <class Model>
auto evaluator_of(bool sparse) {
  const Json config = {{"train_batch_size", 2}, {"sparse_gradients", sparse}};
  return initialize(std::make_shared<Model>(), {.config = config}).engine;
}

TEST(SparseNames, AreThoseOfTheLoadedCheckpoint) {
  using ::testing::ElementsAre;
  using ::testing::IsEmpty;
  const LoadOptions loose = {.load_module_strict = false};
  for (const bool saved_sparse : {false, true}) {
    const TemporaryFolder folder, linear;
    evaluator_of<WordsAndLinear>(saved_sparse)->save_checkpoint(folder.string());
    evaluator_of<OnlyLinear>(true)->save_checkpoint(linear.string());
    for (const bool own_sparse : {false, true}) {
      const auto engine = evaluator_of<WordsAndLinear>(own_sparse);
      const auto names = [&] { return engine->sparse_tensor_module_names(); };
      const auto expect_names = [&](bool sparse) {
        if (sparse) {
          EXPECT_THAT(names(), ElementsAre("bags.weight", "words.weight"));
        } else {
          EXPECT_THAT(names(), IsEmpty());
        }
      };
      expect_names(own_sparse);
      engine->load_checkpoint(linear.string(), loose);  // says nothing of these weights
      expect_names(own_sparse);
      engine->load_checkpoint(folder.string(), loose);
      expect_names(saved_sparse);
    }
    const auto strict = evaluator_of<WordsAndLinear>(!saved_sparse);
    strict->load_checkpoint(folder.string());
    EXPECT_EQ(strict->sparse_tensor_module_names().size(), saved_sparse ? 2U : 0U);
    const auto other = evaluator_of<OnlyLinear>(true);
    other->load_checkpoint(folder.string(), loose);
    EXPECT_THAT(other->sparse_tensor_module_names(), IsEmpty());
  }
}

}  // namespace
}  // namespace deepspeed::testing
