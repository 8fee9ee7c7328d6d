// Recomputation, activations on the host and streams of random numbers on a GPU, against plain forwards
// there.
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <torch/nn/functional/dropout.h>

#include <gtest/gtest.h>

#include "deepspeed/activation/checkpointing.h"
#include "deepspeed/activation/keep/activation_meter.h"
#include "deepspeed/activation/keep/host_copy.h"
#include "deepspeed/activation/saved_tensor_offload.h"
#include "deepspeed/random/cuda_rng_tracker.h"

#include "tests/activation/plain_and_checkpointed.h"
#include "tests/autograd/gpt_block.h"
#include "tests/cuda/require_cuda.h"

namespace deepspeed::testing {
namespace {

class CudaActivation : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    device::seed_generators(1);
    for (const auto& param : block_.parameters()) param.set_data(param.to(at::kCUDA));
    inputs_ = {at::randn({4, 64, kWidth}, at::kCUDA)};
    plain_ = see(function_, inputs_, block_.parameters());
  }
  ~CudaActivation() override { checkpointing::configure(); }

  void expect_plain(const TensorFunction& function) {
    expect_equal_bits(see(function, inputs_, block_.parameters()), plain_);
  }

  Block block_;
  TensorFunction function_ = [this](Tensors x) -> Tensors {
    const auto options = torch::nn::functional::DropoutFuncOptions().p(0.3);
    return {torch::nn::functional::dropout(block_(x[0] * 1), options)};
  };
  Tensors inputs_;
  Seen plain_;
};

TEST_F(CudaActivation, RecomputesThePlainBits) {
  const auto products = std::make_shared<checkpointing::SelectivePolicy>(
      checkpointing::SelectivePolicy::matmuls_and_attention());
  for (const auto& options :
       {checkpointing::RegionOptions{}, checkpointing::RegionOptions{.use_reentrant = true},
        checkpointing::RegionOptions{.keep = products}}) {
    expect_plain(checkpointed(function_, options));
  }
}

TEST_F(CudaActivation, KeepsInputsOnTheHost) {
  for (const bool partition : {false, true}) {
    checkpointing::configure(
        CheckpointOptions{.partition_activations = partition, .checkpoint_in_cpu = true});
    expect_plain(checkpointed(function_));
  }
  const auto meter = std::make_shared<activation::ActivationMeter>();
  const activation::CountActivations count(meter);
  const auto y = checkpointed(function_)({inputs_[0].clone()});
  EXPECT_EQ(meter->host_bytes(), static_cast<int64_t>(inputs_[0].nbytes()));
  EXPECT_EQ(meter->kept_bytes(), 0);
}

TEST_F(CudaActivation, KeepsSavedTensorsOnTheHost) {
  SavedTensorOffload offload({.host_bytes = 1 << 26, .least_bytes = 1024});
  for (int step = 0; step < 3; ++step) {
    expect_plain([&](Tensors x) {
      const SavedTensorOffloadScope scope(offload);
      return function_(std::move(x));
    });
  }
  EXPECT_GT(offload.num_copies(), 0);
  EXPECT_EQ(offload.bytes_on_host(), 0);
}

TEST_F(CudaActivation, DrawsFromTheTrackersStreamOfTheDevice) {
  model_parallel_cuda_manual_seed(10, 3);
  const auto first = at::rand({8}, at::kCUDA);
  const auto tracked = [] {
    const auto fork = get_cuda_rng_tracker().fork();
    return at::rand({8}, at::kCUDA);
  }();
  device::seed_generators(10 + 2718 + 3);
  EXPECT_TRUE(at::rand({8}, at::kCUDA).equal(tracked));
  device::seed_generators(10);
  EXPECT_TRUE(at::rand({8}, at::kCUDA).equal(first));
  get_cuda_rng_tracker().reset();
}

}  // namespace
}  // namespace deepspeed::testing
