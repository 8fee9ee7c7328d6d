// Tests what a layer may be, take and return.
#include "deepspeed/pipe/module/layer_spec.h"

#include <map>
#include <optional>
#include <tuple>

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/linear.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/pipe/module/loss_function.h"

#include "tests/support/error_of.h"

namespace deepspeed::pipe {
namespace {

using deepspeed::testing::throws_error;
using ::testing::ElementsAre;

struct Words {
  at::Tensor hidden;
  at::Tensor positions;  // integers
};

std::vector<std::string> names_of(const Layer& layer) {
  std::vector<std::string> names;
  for (const NamedTensor& param : layer.model.parameters) names.push_back(param.name);
  return names;
}

// Takes and returns a struct that contains an integer tensor.
struct ShiftImpl : torch::nn::Module {
  Words forward(const Words& words) {
    return {words.hidden + shift * words.positions.unsqueeze(-1), words.positions + 1};
  }
  at::Tensor shift = register_parameter("shift", at::ones({1}));
};
TORCH_MODULE(Shift);

TEST(LayerSpec, TakesAndGivesStructsListsAndTuplesOfTensors) {
  const Tensors words = {at::ones({3, 2}), at::arange(3)};
  const LayerSpec shift = LayerSpec::of<Shift>();
  const Tensors shifted = shift.build().forward(words);
  ASSERT_EQ(shifted.size(), 2U);
  EXPECT_TRUE(shifted[0].equal(at::arange(3).unsqueeze(-1) + at::ones({3, 2})));
  EXPECT_TRUE(shifted[1].equal(at::arange(1, 4)));
  EXPECT_TRUE(shifted[0].requires_grad());
  EXPECT_FALSE(shifted[1].requires_grad());

  const LayerSpec tuple = [](const std::tuple<at::Tensor, at::Tensor>& pair) {
    return std::tuple(std::get<1>(pair), std::get<0>(pair));
  };
  EXPECT_TRUE(tuple.build().forward(words)[0].equal(words[1]));
  const LayerSpec list = [](Tensors tensors) {
    tensors.push_back(at::zeros({1}));
    return tensors;
  };
  EXPECT_EQ(list.build().forward(words).size(), 3U);
  const LayerSpec apart = [](const at::Tensor& hidden, const at::Tensor& positions) {
    return hidden.sum() + positions.sum();
  };
  EXPECT_EQ(apart.build().forward(words)[0].item<double>(), 9);
}

TEST(LayerSpec, SaysHowManyTensorsALayerTakes) {
  const Tensors words = {at::ones({3, 2}), at::arange(3)};
  const LayerSpec one = LayerSpec::of<torch::nn::Linear>(2, 2);
  EXPECT_ERROR(UsageError, one.build().forward(words), "LinearImpl does not take 2 tensors");
  const LayerSpec shift = LayerSpec::of<Shift>();
  EXPECT_ERROR(UsageError, shift.build().forward({words[0]}), "ShiftImpl takes 2 tensors, got 1");
  EXPECT_ERROR(UsageError, LayerSpec(std::shared_ptr<torch::nn::LinearImpl>()), "is null");
}

TEST(LayerSpec, BuildsItsModuleOfTheArgumentsEachTime) {
  const LayerSpec spec = LayerSpec::of<torch::nn::Linear>(torch::nn::LinearOptions(2, 3).bias(false));
  EXPECT_FALSE(spec.is_built());
  EXPECT_EQ(spec.class_name(), "torch::nn::LinearImpl");
  const Layer one = spec.build(), other = spec.build();
  EXPECT_THAT(names_of(one), ElementsAre("weight"));
  EXPECT_FALSE(one.model.parameters[0].tensor.is_same(other.model.parameters[0].tensor));
}

TEST(LayerSpec, TakesModulesThatWereBuiltInAnyForm) {
  torch::nn::Linear holder(2, 3);
  const std::shared_ptr<torch::nn::LinearImpl> pointer = holder.ptr();
  for (const LayerSpec& spec :
       {LayerSpec(holder), LayerSpec(pointer), LayerSpec(torch::nn::AnyModule(holder))}) {
    EXPECT_TRUE(spec.is_built());
    const Layer layer = spec.build();
    EXPECT_THAT(names_of(layer), ElementsAre("weight", "bias"));
    EXPECT_TRUE(layer.model.parameters[0].tensor.is_same(holder->weight));
    EXPECT_TRUE(layer.forward({at::ones({2})})[0].equal(holder->forward(at::ones({2}))));
  }
  torch::nn::Sequential sequence(holder, torch::nn::ReLU());
  const auto layers = layers_of(sequence);
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[1].class_name(), "torch::nn::ReLUImpl");
}

// Has its tied weight in a submodule.
struct CoderImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return decoder(x); }
  torch::nn::Linear decoder = register_module("decoder", torch::nn::Linear(2, 2));
};
TORCH_MODULE(Coder);

TEST(TiedLayerSpec, RunsOneModuleByForwardsOfItsOwn) {
  const TiedLayerSpec plain = TiedLayerSpec::of<Coder>("coder").tied_weight_attr({"decoder.weight"});
  const TiedLayerSpec backwards =
      plain.forward_fn([](CoderImpl& coder, const at::Tensor& x) { return x.matmul(coder.decoder->weight); });
  EXPECT_FALSE(plain.tie()->has_forward_fn);
  EXPECT_TRUE(backwards.tie()->has_forward_fn);
  EXPECT_THAT(backwards.tie()->weight_attrs, ElementsAre("decoder.weight"));
  const TiedModule made = plain.tie()->make();
  const auto coder = std::static_pointer_cast<CoderImpl>(made.module);
  const at::Tensor x = at::ones({1, 2});
  EXPECT_TRUE(plain.tie()->bind(made)({x})[0].equal(coder->forward(x)));
  EXPECT_TRUE(backwards.tie()->bind(made)({x})[0].equal(x.matmul(coder->decoder->weight)));
}

TEST(TiedLayerSpec, RefusesEmptyNamesAndAnotherClass) {
  EXPECT_ERROR(UsageError, TiedLayerSpec::of<Coder>(""), "the key is empty");
  EXPECT_ERROR(UsageError, TiedLayerSpec::of<Coder>("coder").tied_weight_attr({}), "'coder' is empty");
  const TiedModule made = TiedLayerSpec::of<Coder>("coder").tie()->make();
  EXPECT_ERROR(UsageError, TiedLayerSpec::of<Shift>("coder").tie()->bind(made), "the tied key 'coder'",
               "expected one class");
}

TEST(LossFunction, TakesTensorsListsStructsAndModules) {
  const Tensors outputs = {at::ones({3}), at::arange(3)}, labels = {at::zeros({3})};
  const LossFunction of_structs = [](const Words& words, const at::Tensor& label) {
    return (words.hidden * words.positions - label).sum();
  };
  EXPECT_EQ(of_structs(outputs, labels).item<double>(), 3);
  const LossFunction of_lists = [](const Tensors& all, const Tensors& targets) {
    return at::ones({}) * double(all.size() + 10 * targets.size());
  };
  EXPECT_EQ(of_lists(outputs, labels).item<double>(), 12);
  const LossFunction of_tensors = [](const at::Tensor& output, const at::Tensor& label) {
    return (output - label).sum();
  };
  EXPECT_EQ(of_tensors({outputs[0]}, labels).item<double>(), 3);
  EXPECT_ERROR(UsageError, of_tensors(outputs, labels), "loss_fn takes one tensor of outputs, got 2");
  EXPECT_FALSE(LossFunction(nullptr));
}

}  // namespace
}  // namespace deepspeed::pipe
