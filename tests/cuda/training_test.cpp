// Whole engines on a GPU against the same ones on the CPU. One rank: NCCL takes one rank a device.
#include <c10/core/GradMode.h>

#include <gtest/gtest.h>

#include "deepspeed/base/message.h"
#include "deepspeed/device/accelerator/host_memory.h"
#include "deepspeed/device/accelerator/memory.h"
#include "deepspeed/engine/tensor_access.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/gradients/buckets/copy_batch.h"
#include "deepspeed/zero/zero_state.h"

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
  const zero::GatheredParameters gathered(engine.module().parameters());
  std::vector<at::Tensor> weights;
  for (const at::Tensor& parameter : engine.module().parameters()) {
    weights.push_back(parameter.detach().to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true));
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

TEST_F(CudaTraining, EqualsTheCpusInFp32AtEveryStage) {
  for (const int stage : {0, 1, 2, 3}) {
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

TEST_F(CudaTraining, StaysNearTheCpusInSixteenBits) {
  expect_near(basic({{"bf16", {{"enabled", true}}}, {"zero_optimization", {{"stage", 2}}}}), 3e-2);
  expect_near(basic({{"fp16", {{"enabled", true}, {"initial_scale_power", 8}}}}), 1e-2);
}

// Stage, home of the optimizer, its part there, home of the parameters.
class CudaOffload : public CudaTest,
                    public ::testing::WithParamInterface<std::tuple<int, const char*, double, const char*>> {
};
INSTANTIATE_TEST_SUITE_P(
    Homes, CudaOffload,
    ::testing::Values(std::tuple(1, "cpu", 1.0, "none"), std::tuple(2, "nvme", 1.0, "none"),
                      std::tuple(3, "cpu", 1.0, "none"), std::tuple(3, "cpu", 0.5, "none"),
                      std::tuple(3, "none", 1.0, "cpu"), std::tuple(3, "cpu", 1.0, "cpu"),
                      std::tuple(3, "cpu", 0.5, "cpu"), std::tuple(3, "nvme", 1.0, "cpu"),
                      std::tuple(3, "none", 1.0, "nvme"), std::tuple(3, "nvme", 1.0, "nvme")));

/// Masters beside the weights, split, and none.
std::vector<Json> precisions() {
  return {Json::object(),
          {{"bf16", {{"enabled", true}}}},
          {{"bf16", {{"enabled", true}, {"split_master_weights", true}}}},
          {{"bf16",
            {{"enabled", true}, {"bf16_master_weights_and_grads", true}, {"bf16_optimizer_states", true}}}},
          {{"fp16", {{"enabled", true}, {"initial_scale_power", 8}}}}};
}

TEST_P(CudaOffload, TrainsAsOnTheCpu) {
  const auto [stage, optimizer, ratio, parameters] = GetParam();
  const TemporaryFolder folder;
  for (const bool clips : {false, true}) {
    for (const Json& precision : precisions()) {
      SCOPED_TRACE(message(precision, clips ? " clipped" : ""));
      Json config = basic({{"gradient_clipping", clips ? 0.05 : 0.0}, {"gradient_accumulation_steps", 1}});
      Json& zero = config["zero_optimization"];
      zero = {{"stage", stage}, {"sub_group_size", 20}, {"stage3_param_persistence_threshold", 13}};
      if (clips) zero["reduce_bucket_size"] = 40;  // many buckets, that take turns with two buffers
      if (optimizer != std::string("none"))
        zero["offload_optimizer"] = {{"device", optimizer}, {"nvme_path", folder.string()}, {"ratio", ratio}};
      if (parameters != std::string("none")) {
        zero["offload_param"] = {{"device", parameters}, {"nvme_path", folder.string()}, {"max_in_cpu", 0}};
        if (parameters == std::string("nvme")) zero["offload_param"]["buffer_size"] = 10'000;
      }
      config.update(precision);
      config["aio"] = {{"block_size", 4096}};
      expect_near(config, precision.empty() ? 1e-4 : 3e-2);
    }
  }
}

// Sums on a GPU may be added up in another order from run to run.
TEST_F(CudaTraining, IsTheSameDuringBackwardAsAfterIt) {
  for (const auto& [stage, ratio, parameters] :
       {std::tuple(2, 1.0, "none"), {3, 1.0, "none"}, {3, 0.5, "none"}, {3, 1.0, "cpu"}, {3, 0.5, "cpu"}}) {
    for (Json precision : precisions()) {
      if (precision.contains("fp16")) continue;  // its step waits for all gradients
      for (const bool checks : {false, true}) {
        if (checks && precision.dump().find("bf16_master_weights_and_grads") != std::string::npos) continue;
        if (precision.contains("bf16")) precision["bf16"]["check_grad_overflow"] = checks;
        Json config = basic({{"gradient_clipping", 0.0}});
        config["zero_optimization"] = {
            {"stage", stage},
            {"sub_group_size", 20},
            {"offload_optimizer", {{"device", "cpu"}, {"ratio", ratio}, {"super_offload", false}}}};
        if (stage == 3) config["zero_optimization"]["offload_param"] = {{"device", parameters}};
        config.update(precision);
        SCOPED_TRACE(config.dump());
        const Trained after = train(config, "nccl");
        config["zero_optimization"]["offload_optimizer"]["super_offload"] = true;
        const Trained beside = train(config, "nccl");
        const double tolerance = precision.empty() ? 1e-5 : 1e-2;
        for (size_t i = 0; i < after.losses.size(); ++i)
          EXPECT_NEAR(beside.losses[i], after.losses[i], tolerance * after.losses[i]) << "step " << i;
        for (size_t i = 0; i < after.weights.size(); ++i) {
          EXPECT_TRUE(at::allclose(beside.weights[i], after.weights[i], tolerance, tolerance))
              << "weight " << i;
        }
      }
    }
  }
}

/// Returns losses of forwards between a backward and its step, which read weights that the step then writes.
std::vector<double> losses_between(const Json& config, const char* backend) {
  const comm::World world = comm::init_distributed({.dist_backend = backend, .verbose = false});
  const at::Device device = std::string(backend) == "nccl" ? at::kCUDA : at::kCPU;
  std::vector<double> losses;
  {
    const auto engine = make_engine(config, world);
    const auto type = engine->module().parameters().front().scalar_type();
    for (int step = 0; step < 4; ++step) {
      const auto [inputs, targets] = odd_batch(4 * step, 4);
      const at::Tensor in = inputs.to(device, type), out = targets.to(device);
      engine->backward(engine->forward(in, out));
      at::Tensor loss;
      {
        const c10::NoGradGuard no_grad;
        loss = engine->forward(in, out);
      }
      engine->step();
      losses.push_back(loss.item<double>());
    }
  }
  comm::destroy_process_group();
  return losses;
}

// Without a norm that comes first, for which the host would wait anyway.
TEST_F(CudaTraining, ReadsWeightsOfTheHostBetweenBackwardAndStep) {
  for (const bool beside : {false, true}) {
    for (Json precision : precisions()) {
      if (precision.contains("fp16")) continue;
      if (precision.contains("bf16")) precision["bf16"]["check_grad_overflow"] = false;
      Json config = basic({{"gradient_clipping", 0.0}});
      config["zero_optimization"] = {{"stage", 3},
                                     {"sub_group_size", 20},
                                     {"stage3_param_persistence_threshold", 0},
                                     {"offload_optimizer", {{"device", "cpu"}, {"super_offload", beside}}},
                                     {"offload_param", {{"device", "cpu"}}}};
      config.update(precision);
      SCOPED_TRACE(config.dump());
      const auto expected = losses_between(config, "gloo"), seen = losses_between(config, "nccl");
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(seen[i], expected[i], (precision.empty() ? 1e-4 : 3e-2) * expected[i]) << "step " << i;
    }
  }
}

TEST_F(CudaTraining, ResumesFromACheckpointBitForBit) {
  const comm::World world = comm::init_distributed({.dist_backend = "nccl", .verbose = false});
  for (const bool decoupled : {false, true}) {
    SCOPED_TRACE(decoupled ? "written beside the training" : "written at once");
    const TemporaryFolder folder;
    const Json config = basic({{"bf16", {{"enabled", true}}},
                               {"checkpoint", {{"writer", {{"decoupled", decoupled}}}}},
                               {"zero_optimization", {{"stage", 2}}}});
    const auto straight = make_engine(config, world), resumed = make_engine(config, world);
    for (int step = 0; step < 3; ++step) train_on(*straight, at::kCUDA, 4 * step);
    straight->save_checkpoint(folder.path());
    straight->wait_for_checkpoint();
    resumed->load_checkpoint(folder.path());
    for (int step = 3; step < 6; ++step) {
      EXPECT_EQ(train_on(*straight, at::kCUDA, 4 * step), train_on(*resumed, at::kCUDA, 4 * step));
    }
    const auto expected = weights_of(*straight), seen = weights_of(*resumed);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(expected[i], seen[i])) << i;
  }
  comm::destroy_process_group();
}

TEST_F(CudaTraining, ContinuesAfterItsStatesWereOnTheHost) {
  const comm::World world = comm::init_distributed({.dist_backend = "nccl", .verbose = false});
  for (const int stage : {1, 2, 3}) {
    for (const bool pins : {false, true}) {
      SCOPED_TRACE(message("stage ", stage));
      const Json config = basic({{"bf16", {{"enabled", true}}}, {"zero_optimization", {{"stage", stage}}}});
      const auto moved = make_engine(config, world), straight = make_engine(config, world);
      for (int step = 0; step < 3; ++step) {
        EXPECT_EQ(train_on(*moved, at::kCUDA, 4 * step), train_on(*straight, at::kCUDA, 4 * step));
        moved->offload_states({.pin_memory = pins, .non_blocking = pins});
        for (const auto kind : {OffloadStateTypeEnum::optim_states, OffloadStateTypeEnum::hp_params,
                                OffloadStateTypeEnum::lp_params}) {
          EXPECT_EQ(moved->state_devices(kind), std::vector<at::Device>{at::kCPU});
        }
        EXPECT_ANY_THROW(train_on(*moved, at::kCUDA, 0));
        moved->reload_states(pins);
      }
      const auto expected = weights_of(*straight), seen = weights_of(*moved);
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(expected[i], seen[i])) << i;
    }
  }
  comm::destroy_process_group();
}

// A part of the masters is joined on the device, a part in host memory.
TEST_F(CudaTraining, SplitMastersAreWrittenAndReadAsFp32Ones) {
  const TemporaryFolder folder;
  const comm::World world = comm::init_distributed({.dist_backend = "nccl", .verbose = false});
  {
    Json config = basic({{"bf16", {{"enabled", true}, {"split_master_weights", true}}},
                         {"zero_optimization",
                          {{"stage", 3},
                           {"sub_group_size", 20},
                           {"offload_optimizer", {{"device", "cpu"}, {"ratio", 0.5}}}}}});
    const auto split = make_engine(config, world);
    config["bf16"]["split_master_weights"] = false;
    const auto plain = make_engine(config, world);
    for (int step = 0; step < 3; ++step) train_on(*split, at::kCUDA, 4 * step);
    split->save_checkpoint(folder.path());
    plain->load_checkpoint(folder.path());
    for (const char* name : {"first.weight", "shared.weight", "last.bias"}) {
      const at::Tensor expected = safe_get_full_fp32_param(*split, split->module().named_parameters()[name]);
      EXPECT_TRUE(
          at::equal(safe_get_full_fp32_param(*plain, plain->module().named_parameters()[name]), expected))
          << name;
    }
    EXPECT_EQ(split->memory().total(), 14 * split->optimizer()->state().owned(0).numel());
  }
  comm::destroy_process_group();
}

// A simulated device does not tell.
TEST_F(CudaTest, AvailableMemoryIsWhatTensorsLeave) {
  constexpr int64_t kBytes = 64 << 20;
  const auto options = at::TensorOptions().device(at::kCUDA).dtype(at::kByte);
  const at::Tensor first = at::zeros({1}, options);
  const int64_t before = device::cuda_available_bytes(device::current_cuda_device());
  const at::Tensor taken = at::empty({kBytes}, options);
  const int64_t after = device::cuda_available_bytes(device::current_cuda_device());
  EXPECT_EQ(before - after, before == 0 ? 0 : kBytes);
}

TEST_F(CudaTest, CopiesOfSmallGradientsAreLaunchedTogether) {
  const auto options = at::TensorOptions().device(at::kCUDA);
  const auto sum = [](const at::Tensor& tensor) { return tensor.sum(at::kDouble).item<double>(); };
  const at::Tensor buffer = at::zeros({48}, options), other = at::zeros({4}, options.dtype(at::kBFloat16)),
                   large = at::zeros({4 << 20}, options);
  zero::CopyBatch copies;
  copies.copy(buffer.narrow(0, 0, 4), at::ones({4}, options));
  copies.copy(buffer.narrow(0, 8, 4), at::ones({4}, options));
  EXPECT_EQ(sum(buffer), 0) << "they wait";
  copies.copy(buffer.narrow(0, 16, 16).view({4, 4}), at::ones({4, 4}, options).triu().t());
  EXPECT_EQ(sum(buffer), 10) << "what is not contiguous does not";
  copies.copy(large, at::ones_like(large));
  EXPECT_EQ(sum(large), 4 << 20) << "nor does what is large";
  copies.copy(other, at::ones_like(other));
  EXPECT_EQ(sum(buffer), 18) << "those of another dtype go first";
  copies.flush();
  EXPECT_EQ(sum(other), 4);
  copies.copy(buffer, at::zeros_like(buffer));
  copies.drop();
  copies.flush();
  EXPECT_EQ(sum(buffer), 18);
}

TEST_F(CudaTest, HostMemoryIsPageLockedAndNoLargerThanItsPages) {
  constexpr int64_t kNumel = (256 << 18) + 1;  // a little more than 256 MiB
  const at::Tensor there = at::zeros({kNumel}, at::TensorOptions().device(at::kCUDA));
  // The first use of the device and of a kernel takes memory as well.
  ASSERT_EQ(there.sum(at::kDouble).item<double>(), 0.0);
  const int64_t before = device::resident_bytes();
  at::Tensor memory = device::empty_host(kNumel, at::kFloat, true);
  EXPECT_TRUE(memory.is_pinned());
  memory.fill_(3.0);
  there.copy_(memory, /*non_blocking=*/true);
  EXPECT_EQ(there.sum(at::kDouble).item<double>(), 3.0 * kNumel);
  EXPECT_LT(device::resident_bytes() - before, int64_t{400} << 20);
  EXPECT_FALSE(device::empty_host(kNumel, at::kFloat, false).is_pinned());
}

}  // namespace
}  // namespace deepspeed::testing
