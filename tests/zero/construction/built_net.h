// A model whose constructor does what can break partitioned construction: late initialisers, temporaries that
// look like parameters, buffers computed from parameters, tied and frozen weights.
#pragma once

#include <ATen/ATen.h>
#include <torch/nn/init.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/types.h>

#include <gtest/gtest.h>

#include "tests/support/small_net.h"

namespace deepspeed::testing {

struct BuiltNet : torch::nn::Module {
  BuiltNet() {
    embedding =
        register_module("embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(23, 8).padding_idx(3)));
    first = register_module("first", torch::nn::Linear(8, 13));
    norm = register_module("norm", torch::nn::BatchNorm1d(13));
    lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(13, 8).num_layers(2)));
    scaled = register_parameter("scaled", torch::randn({13, 5}) * 0.02);
    frozen = register_parameter("frozen", torch::rand({5}), /*requires_grad=*/false);
    head = register_module("head", std::make_shared<TiedHead>(embedding->weight));
    const at::Tensor temporary = torch::rand({13}).requires_grad_();
    last = register_module("last", torch::nn::Linear(torch::nn::LinearOptions(13, 13)));
    offset = register_buffer("offset", (temporary * 2 + first->bias).detach());
    initialise_late();
    EXPECT_NEAR(offset[3].item<float>() - first_bias_[3].item<float>(), 2 * temporary[3].item<float>(), 1e-5);
    size = register_buffer("size", last->weight.detach().norm());
  }

  torch::nn::Embedding embedding{nullptr};
  torch::nn::Linear first{nullptr}, last{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::LSTM lstm{nullptr};
  std::shared_ptr<TiedHead> head;
  at::Tensor scaled, frozen, offset, size;

 private:
  void initialise_late() {
    first_bias_ = first->bias.detach().clone();
    torch::nn::init::orthogonal_(last->weight);
    torch::nn::init::constant_(first->bias, 0.5);
    torch::nn::init::uniform_(first->weight, -0.1, 0.1);
    for (auto& param : lstm->parameters()) torch::nn::init::normal_(param, 0.0, 0.3);
    const c10::NoGradGuard no_grad;
    scaled.mul_(3);
    last->weight[2].fill_(1.5);
    last->weight.data().slice(0, 4, 6).uniform_(-1, 1);
    last->bias.copy_(first->bias + first->weight.sum());
    const at::Tensor view = embedding->weight.t();
    torch::zeros({1000});  // needs room while the view exists
    view.select(1, 5).fill_(0.25);
  }

  at::Tensor first_bias_;
};

}  // namespace deepspeed::testing
