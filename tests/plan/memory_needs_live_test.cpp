#include "deepspeed/plan/memory_needs_live.h"

#include <sstream>

#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/model/describe_module.h"
#include "deepspeed/plan/memory_needs.h"

#include "tests/support/error_of.h"

namespace deepspeed::zero {
namespace {

/// A module with a tensor of another one.
class TiedHead : public torch::nn::Module {
 public:
  explicit TiedHead(const at::Tensor& weight) { register_parameter("weight", weight); }
};

/// Embedding and head are one tensor of 5,000,000; a layer of 2000 x 1000 + 2000.
class TiedModel : public torch::nn::Module {
 public:
  TiedModel() {
    register_module("layer", torch::nn::Linear(1000, 2000));
    const auto embedding = register_module("embedding", torch::nn::Embedding(5000, 1000));
    register_module("head", std::make_shared<TiedHead>(embedding->weight));
  }
};

TEST(MemoryNeedsLive, CountSharedParametersOnceAndTheLargestLayer) {
  const auto model = std::make_shared<TiedModel>();
  const ModelSize size = model_size(describe_module(model));
  EXPECT_EQ(size.total_params, 7'002'000);
  EXPECT_EQ(size.largest_layer_params, 5'000'000);
  std::ostringstream live, cold;
  estimate_zero3_model_states_mem_needs_all_live(model, {4, 2}, 1.5, live);
  estimate_zero3_model_states_mem_needs_all_cold(7'002'000, 5'000'000, {4, 2}, 1.5, cold);
  EXPECT_EQ(live.str(), cold.str());
  live.str("");
  cold.str("");
  estimate_zero2_model_states_mem_needs_all_live(model, {4, 2}, 1.5, live);
  estimate_zero2_model_states_mem_needs_all_cold(7'002'000, {4, 2}, 1.5, cold);
  EXPECT_EQ(live.str(), cold.str());
  EXPECT_ERROR(UsageError, estimate_zero2_model_states_mem_needs_all_live(nullptr), "the model is null",
               "shared_ptr to a torch::nn::Module");
}

}  // namespace
}  // namespace deepspeed::zero
