// Whole engines on a GPU against the same ones on the CPU. One rank: NCCL takes one rank a device.
#include <gtest/gtest.h>

#include "deepspeed/base/message.h"

#include "tests/cuda/require_cuda.h"
#include "tests/engine/make_engine.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

using CudaTraining = CudaTest;

struct Trained {
  std::vector<double> losses;
  std::vector<at::Tensor> weights;  // fp32, on the CPU
};

std::vector<at::Tensor> weights_of(auto& engine) {
  std::vector<at::Tensor> weights;
  for (const at::Tensor& parameter : engine.module().parameters()) {
    weights.push_back(parameter.detach().to(at::kCPU, at::kFloat));
  }
  return weights;
}

double train_on(auto& engine, const at::Device& device, int64_t first) {
  const auto [inputs, targets] = odd_batch(first, 4);
  const auto type = engine.module().parameters().front().scalar_type();
  const at::Tensor loss = engine.forward(inputs.to(device, type), targets.to(device));
  engine.backward(loss);
  engine.step();
  return loss.template item<double>();
}

Trained train(const Json& config, const char* backend) {
  const comm::World world = comm::init_distributed({.dist_backend = backend, .verbose = false});
  const at::Device device = std::string(backend) == "nccl" ? at::kCUDA : at::kCPU;
  Trained result;
  {
    const auto engine = make_engine(config, world);
    for (const at::Tensor& parameter : engine->module().parameters()) {
      EXPECT_EQ(parameter.device().type(), device.type());
    }
    for (int step = 0; step < 12; ++step) result.losses.push_back(train_on(*engine, device, 4 * step));
    result.weights = weights_of(*engine);
  }
  comm::destroy_process_group();
  return result;
}

void expect_near(const Json& config, double tolerance) {
  const Trained on_cpu = train(config, "gloo"), on_cuda = train(config, "nccl");
  for (size_t i = 0; i < on_cpu.losses.size(); ++i) {
    EXPECT_NEAR(on_cuda.losses[i], on_cpu.losses[i], tolerance * on_cpu.losses[i]) << "step " << i;
  }
  for (size_t i = 0; i < on_cpu.weights.size(); ++i) {
    EXPECT_TRUE(at::allclose(on_cuda.weights[i], on_cpu.weights[i], tolerance, tolerance)) << "weight " << i;
  }
}

TEST_F(CudaTraining, InFp32EqualsThatOfTheCpuAtEveryStage) {
  for (const int stage : {0, 1, 2}) {
    for (const char* optimizer : {"AdamW", "SGD", "Lion", "Adagrad", "Lamb"}) {
      SCOPED_TRACE(message("stage ", stage, " with ", optimizer));
      expect_near(basic({{"zero_optimization", {{"stage", stage}}},
                         {"zero_allow_untested_optimizer", true},
                         {"gradient_clipping", 0.5},
                         {"optimizer", {{"type", optimizer}}}}),
                  1e-4);
    }
  }
}

TEST_F(CudaTraining, InSixteenBitsStaysNearThatOfTheCpu) {
  expect_near(basic({{"bf16", {{"enabled", true}}}, {"zero_optimization", {{"stage", 2}}}}), 3e-2);
  expect_near(basic({{"fp16", {{"enabled", true}, {"initial_scale_power", 8}}}}), 1e-2);
}

TEST_F(CudaTraining, GoesOnFromACheckpointBitForBit) {
  const TemporaryFolder folder;
  const comm::World world = comm::init_distributed({.dist_backend = "nccl", .verbose = false});
  {
    const Json config = basic({{"bf16", {{"enabled", true}}}, {"zero_optimization", {{"stage", 2}}}});
    const auto straight = make_engine(config, world), resumed = make_engine(config, world);
    for (int step = 0; step < 3; ++step) train_on(*straight, at::kCUDA, 4 * step);
    straight->save_checkpoint(folder.path());
    resumed->load_checkpoint(folder.path());
    for (int step = 3; step < 6; ++step) {
      EXPECT_EQ(train_on(*straight, at::kCUDA, 4 * step), train_on(*resumed, at::kCUDA, 4 * step));
    }
    const auto expected = weights_of(*straight), seen = weights_of(*resumed);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(expected[i], seen[i])) << i;
  }
  comm::destroy_process_group();
}

}  // namespace
}  // namespace deepspeed::testing
