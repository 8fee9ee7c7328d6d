// The simulated device itself: plain LibTorch trains on it as on the CPU, and each kind of mistake is found.
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include <torch/nn.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/accelerator/host_memory.h"
#include "deepspeed/device/streams/side_stream.h"

#include "tests/simulated_cuda/device/findings.h"
#include "tests/simulated_cuda/device/streams.h"

namespace deepspeed::simulated {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// all_layers: with an attention and a convolution, for which torch takes other algorithms on the CPU than
/// elsewhere.
struct PlainNet : torch::nn::Module {
  explicit PlainNet(bool all_layers) : all_layers_(all_layers) {
    embedding_ = register_module("embedding", torch::nn::Embedding(11, 16));
    norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})));
    first_ = register_module("first", torch::nn::Linear(16, 32));
    second_ = register_module("second", torch::nn::Linear(32, 4));
    convolution_ =
        register_module("convolution", torch::nn::Conv1d(torch::nn::Conv1dOptions(6, 6, 3).padding(1)));
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = norm_(embedding_(ids));
    if (all_layers_) {
      const at::Tensor heads = x.unsqueeze(1);
      x = convolution_(x + at::scaled_dot_product_attention(heads, heads, heads).squeeze(1));
    }
    return second_(at::dropout(at::gelu(first_(x)), 0.25, is_training()).mean(1));
  }

 private:
  bool all_layers_;
  torch::nn::Embedding embedding_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  torch::nn::Linear first_{nullptr}, second_{nullptr};
  torch::nn::Conv1d convolution_{nullptr};
};

std::unique_ptr<torch::optim::Optimizer> make_optimizer(PlainNet& net, bool with_adam) {
  if (with_adam)
    return std::make_unique<torch::optim::AdamW>(net.parameters(), torch::optim::AdamWOptions(1e-2));
  return std::make_unique<torch::optim::SGD>(net.parameters(), torch::optim::SGDOptions(1e-1).momentum(0.9));
}

/// Returns losses and weights of a short training.
std::vector<at::Tensor> train_plainly(const at::Device& device, bool with_adam, bool all_layers) {
  torch::manual_seed(3);
  PlainNet net(all_layers);
  net.to(device);
  const at::Tensor ids = at::randint(0, 11, {8, 6}), labels = at::randint(0, 4, {8});
  const auto optimizer = make_optimizer(net, with_adam);
  torch::manual_seed(5);
  std::vector<at::Tensor> result;
  for (int step = 0; step < 5; ++step) {
    optimizer->zero_grad();
    const at::Tensor loss = at::cross_entropy_loss(net.forward(ids.to(device)), labels.to(device));
    loss.backward();
    torch::nn::utils::clip_grad_norm_(net.parameters(), 0.5);
    optimizer->step();
    result.push_back(loss.detach().cpu());
  }
  for (const auto& parameter : net.parameters()) result.push_back(parameter.detach().cpu());
  return result;
}

TEST(SimulatedDevice, TrainsAsTheCpuBitForBit) {
  for (const bool with_adam : {false, true}) {
    const auto expected = train_plainly(at::kCPU, with_adam, false),
               seen = train_plainly(at::kCUDA, with_adam, false);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(expected[i], seen[i])) << i;
  }
}

TEST(SimulatedDevice, TrainsAttentionAndConvolutionNearlyAsTheCpu) {
  const auto expected = train_plainly(at::kCPU, true, true), seen = train_plainly(at::kCUDA, true, true);
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_TRUE(at::allclose(expected[i], seen[i], 1e-4, 1e-5)) << i;
}

TEST(SimulatedDevice, RefusesTensorsOfBothDevices) {
  EXPECT_THROW(at::ones({4}, at::kCUDA).add(at::ones({4})), c10::Error);
}

/// A device with a side stream, and memory of both sides.
class SimulatedStreams : public ::testing::Test {
 protected:
  SimulatedStreams() { source_.fill_(1.0); }
  ~SimulatedStreams() override { synchronize_device(0, ""); }

  /// Runs work on the side stream, which waits for nothing.
  void aside(const std::function<void()>& work) const {
    const c10::Stream former = exchange_stream(stream_);
    work();
    exchange_stream(former);
  }
  void side_waits() const { device::StreamEvent(current_stream(0)).hold(stream_); }

  at::Tensor x_ = at::zeros({100}, at::kCUDA);
  at::Tensor source_ = device::empty_host_from_pool(100, at::kFloat, true);
  at::Tensor back_ = device::empty_host_from_pool(100, at::kFloat, true);
  const c10::Stream stream_ = next_stream(0);
};

TEST_F(SimulatedStreams, ShowPoisonToAReaderThatDoesNotWait) {
  side_waits();
  aside([&] { x_.copy_(source_, true); });
  EXPECT_TRUE(std::isnan(x_.sum().item<float>()));
  EXPECT_THAT(take_findings(), ElementsAre(::testing::AllOf(
                                   HasSubstr("race: aten::sum"), HasSubstr("copy_ to the device on stream"),
                                   HasSubstr("ShowPoisonToAReaderThatDoesNotWait"))));
  device::StreamEvent(stream_).hold(current_stream(0));
  EXPECT_EQ(x_.sum().item<float>(), 100);
  EXPECT_THAT(take_findings(), IsEmpty());
}

TEST_F(SimulatedStreams, LetASideStreamWaitForItsTensor) {
  at::Tensor y = at::empty({100}, at::kCUDA);
  aside([&] { y.copy_(x_); });
  EXPECT_THAT(take_findings(),
              ::testing::Contains(HasSubstr("that aten::zero_ on the default stream writes")));
  side_waits();
  aside([&] { y.copy_(x_); });
  EXPECT_THAT(take_findings(), IsEmpty());
}

TEST_F(SimulatedStreams, HostMemoryHoldsPoisonUntilTheHostWaits) {
  x_.fill_(3.0);
  back_.fill_(0.0);
  back_.copy_(x_, true);
  EXPECT_TRUE(std::isnan(back_[7].item<float>()));
  device::StreamEvent(current_stream(0)).wait();
  EXPECT_EQ(back_[7].item<float>(), 3.0F);
}

TEST_F(SimulatedStreams, HostMemoryStaysAsItIsWhileItIsCopied) {
  x_.copy_(source_, true);
  source_.fill_(2.0);
  synchronize_device(0, "");
  EXPECT_THAT(take_findings(),
              ElementsAre(HasSubstr("the host writes page-locked memory while copy_ to the device")));
  x_.copy_(source_, true);
  synchronize_device(0, "");
  source_.fill_(3.0);
  EXPECT_THAT(take_findings(), IsEmpty());
}

TEST_F(SimulatedStreams, RecordATensorThatDiesUnderASideStream) {
  for (const bool records : {false, true}) {
    at::Tensor dies = at::full({100}, 3.0, at::kCUDA);
    side_waits();
    aside([&] { back_.copy_(dies, true); });
    if (records) dies.record_stream(stream_);
    dies.reset();
    const at::Tensor next = at::empty({100}, at::kCUDA);
    const auto found = take_findings();
    EXPECT_EQ(found.size(), records ? 0 : 1);
    if (!records) {
      EXPECT_THAT(found.front(), HasSubstr("record_stream() it, or wait"));
    }
    synchronize_device(0, "");
  }
}

TEST_F(SimulatedStreams, MemoryIsUnlockedWhenItsCopiesAreDone) {
  std::vector<float> memory(100, 1.0F);
  for (const bool waits : {false, true}) {
    device::lock_pages(memory.data(), 400);
    x_.copy_(at::from_blob(memory.data(), {100}), true);
    if (waits) device::synchronize_used_devices();
    device::unlock_pages(memory.data());
    EXPECT_EQ(take_findings().size(), waits ? 0 : 1);
  }
}

TEST_F(SimulatedStreams, FindASecondDeviceOfAProcess) {
  { const at::Tensor other = at::empty({4}, at::Device(at::kCUDA, 1)); }
  EXPECT_THAT(take_findings(), ElementsAre(HasSubstr("an allocation on device 1 by a process of device 0")));
}

TEST_F(SimulatedStreams, WaitsOfTheHostAreCounted) {
  synchronize_device(0, "");
  take_host_waits();
  x_.sum().item();
  device::StreamEvent(current_stream(0)).wait();
  const HostWaits waits = take_host_waits();
  EXPECT_EQ(waits.waits, 1);
  EXPECT_EQ(waits.needless, 1);
  EXPECT_THAT(waits.text(), HasSubstr("1 x item()"));
}

TEST(SimulatedDeviceDeathTest, TheHostCannotFollowItsAddresses) {
  GTEST_FLAG_SET(death_test_style, "fast");
  const at::Tensor x = at::ones({4}, at::kCUDA);
  EXPECT_DEATH(*static_cast<float*>(x.mutable_data_ptr()) = 1,
               "the host follows an address of the device(.|\n)*TheHostCannotFollow(.|\n)*allocation");
}

}  // namespace
}  // namespace deepspeed::simulated
