// Every optimizer against its float64 reference: element by element, 100 steps, two groups with options of
// their own, slices of several parameters of odd sizes with padding behind them.
#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/optim/algorithms/adagrad.h"
#include "deepspeed/optim/algorithms/lamb.h"
#include "deepspeed/optim/algorithms/muon.h"
#include "deepspeed/optim/factory.h"

#include "tests/optim/algorithms/float64_reference.h"
#include "tests/support/error_of.h"

namespace deepspeed::optim {
namespace {

constexpr int64_t kPadding = 5;
constexpr int kSteps = 100;
constexpr double kScale = 0.5;  // of the gradient

using Shapes = std::vector<std::vector<int64_t>>;
using Rule = std::function<void(reference::Parameter&, const at::Tensor&, const Hyperparameters&)>;

struct Case {
  std::string what;
  std::function<std::unique_ptr<Optimizer>(std::vector<ParamGroup>)> make;
  Rule rule;
  double lost_a_step = 2e-6;  // of lr, beside the rounding of the weight: fp32 arithmetic on numbers near 1
};

Case from_config(const std::string& type, const std::string& params, Rule rule, double lost_a_step = 2e-6) {
  return {type + " " + params,
          [=](std::vector<ParamGroup> groups) {
            return make_optimizer(type, Json::parse(params), std::move(groups));
          },
          std::move(rule), lost_a_step};
}

int64_t numel_of(const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return numel;
}

// A group: its flat slice and the same parameters in double.
struct Group {
  Group(size_t index, const Shapes& shapes, const at::Generator& generator) {
    int64_t offset = 0;
    for (const auto& shape : shapes) {
      segments.push_back(
          {static_cast<int64_t>(segments.size()), {offset, offset + numel_of(shape)}, 0, shape});
      offset += numel_of(shape);
    }
    slice.id = slice.group = index;
    slice.master = at::randn({offset + kPadding}, generator, at::kFloat);
    slice.master.narrow(0, offset, kPadding).zero_();
    slice.gradient = at::zeros_like(slice.master);
    slice.low_precision = at::zeros({offset + kPadding}, at::kBFloat16);
    slice.segments = &segments;
    for (const Segment& segment : segments)
      parameters.push_back({part(slice.master, segment).to(at::kDouble), {}, 0});
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  static at::Tensor part(const at::Tensor& flat, const Segment& segment) {
    return flat.narrow(0, segment.in_slice.begin, segment.in_slice.numel()).view(segment.shape);
  }

  void step(Optimizer& optimizer, const at::Generator& generator, const Rule& rule) {
    for (size_t i = 0; i < segments.size(); ++i) {
      at::Tensor gradient = part(slice.gradient, segments[i]);
      gradient.copy_(at::randn(segments[i].shape, generator, at::kFloat));
      rule(parameters[i], gradient.to(at::kDouble) * kScale, optimizer.param_groups()[slice.group].options);
    }
    optimizer.step(slice, kScale);
  }

  void expect_reference(const std::string& what, double lr, double lost_a_step) const {
    constexpr double kHalfUlp = 6e-8;  // 2^-24
    for (size_t i = 0; i < segments.size(); ++i) {
      const at::Tensor ours = part(slice.master, segments[i]).to(at::kDouble).contiguous();
      const at::Tensor expected = parameters[i].p.contiguous();
      for (int64_t k = 0; k < ours.numel(); ++k) {
        const double value = expected.const_data_ptr<double>()[k];
        const double bound = kSteps * (kHalfUlp * (std::abs(value) + 1) + lost_a_step * lr);
        ASSERT_NEAR(ours.const_data_ptr<double>()[k], value, bound)
            << what << ", group " << slice.group << ", parameter " << i << ", element " << k;
      }
    }
    EXPECT_TRUE(at::equal(slice.low_precision, slice.master.to(at::kBFloat16))) << what;
  }

  std::vector<Segment> segments;
  FlatSlice slice;
  std::vector<reference::Parameter> parameters;
};

void expect_reference(const Case& c, const Shapes& first, const Shapes& second) {
  const auto generator = at::detail::createCPUGenerator(23);
  std::vector<ParamGroup> param_groups(2);
  param_groups[1].options.set("lr", 3e-3);
  param_groups[1].options.set("weight_decay", 0.0);
  const auto optimizer = c.make(param_groups);
  Group a(0, first, generator), b(1, second, generator);
  for (int i = 0; i < kSteps; ++i) {
    a.step(*optimizer, generator, c.rule);
    b.step(*optimizer, generator, c.rule);
  }
  for (const Group* group : {&a, &b}) {
    group->expect_reference(c.what, optimizer->param_groups()[group->slice.group].lr(), c.lost_a_step);
    EXPECT_EQ(optimizer->state(group->slice.id).step, kSteps) << c.what;
  }
}

// The moments of a parameter's first steps are divided by their own square root: near a zero of the gradient
// the relative error of a quotient is that of the gradient, so that no bound on it can be tighter than a few
// ulps.
std::vector<Case> elementwise_cases() {
  const auto adam = [](bool decoupled, bool amsgrad) {
    return [=](reference::Parameter& x, const at::Tensor& g, const Hyperparameters& h) {
      reference::adam(x, g, h, decoupled, amsgrad);
    };
  };
  const auto torch_adagrad = [](reference::Parameter& x, const at::Tensor& g, const Hyperparameters& h) {
    reference::adagrad(x, g, h, false);
  };
  const auto cpu_adagrad = [](reference::Parameter& x, const at::Tensor& g, const Hyperparameters& h) {
    reference::adagrad(x, g, h, true);
  };
  return {
      from_config("AdamW", R"({"lr": 0.01, "weight_decay": 0.1})", adam(true, false)),
      from_config("Adam", R"({"lr": 0.01, "weight_decay": 0.1, "adam_w_mode": false, "betas": [0.8, 0.95]})",
                  adam(false, false)),
      from_config("Adam", R"({"lr": 0.01, "weight_decay": 0.1, "bias_correction": false})",
                  adam(true, false)),
      from_config("AdamW", R"({"lr": 0.01, "weight_decay": 0.1, "torch_adam": true, "amsgrad": true})",
                  adam(true, true)),
      from_config(
          "Adam",
          R"({"lr": 0.01, "weight_decay": 0.1, "torch_adam": true, "adam_w_mode": false, "amsgrad": true})",
          adam(false, true)),
      from_config("SGD", R"({"lr": 0.01, "weight_decay": 0.1})", reference::sgd, 2e-5),
      from_config("SGD", R"({"lr": 0.01, "weight_decay": 0.1, "momentum": 0.9, "dampening": 0.3})",
                  reference::sgd, 2e-5),
      from_config("SGD", R"({"lr": 0.01, "weight_decay": 0.1, "momentum": 0.9, "nesterov": true})",
                  reference::sgd, 2e-5),
      from_config("Lion", R"({"lr": 0.01, "weight_decay": 0.1, "betas": [0.9, 0.99]})", reference::lion),
      from_config("Adagrad",
                  R"({"lr": 0.01, "weight_decay": 0.1, "lr_decay": 0.01, "initial_accumulator_value": 0.1})",
                  torch_adagrad),
      {"DeepSpeedCPUAdagrad",
       [](std::vector<ParamGroup> groups) {
         groups[0].options.set("weight_decay", 0.1);
         return std::make_unique<Adagrad>(std::move(groups), AdagradKind::kDeepSpeedCpu);
       },
       cpu_adagrad}};
}

TEST(Optimizers, ElementwiseOnesEqualTheirReferenceOver100Steps) {
  for (const Case& c : elementwise_cases()) {
    expect_reference(c, {{7, 5}, {33}}, {{3, 11}, {1}});
  }
}

TEST(Optimizers, LambEqualsItsReferenceOver100Steps) {
  const auto lamb = [](const std::string& params) {
    return from_config("Lamb", params, reference::lamb, 2e-5);
  };
  for (const Case& c :
       {lamb(R"({"lr": 0.01, "weight_decay": 0.1})"),
        lamb(R"({"lr": 0.01, "eps_inside_sqrt": true, "eps": 1e-6, "bias_correction": false})"),
        lamb(R"({"lr": 0.01, "max_coeff": 0.5, "min_coeff": 0.2})")}) {
    expect_reference(c, {{7, 5}, {33}}, {{3, 11}, {1}});
  }
}

TEST(Optimizers, MuonEqualsItsReferenceOver100Steps) {
  const Rule rule = [](reference::Parameter& x, const at::Tensor& g, const Hyperparameters& h) {
    if (h.flag("use_muon")) {
      reference::muon(x, g, h);
    } else {
      reference::adam(x, g, h, true, false);
    }
  };
  for (const std::string method : {"gram", "standard"}) {
    const Case c{method,
                 [&](std::vector<ParamGroup> groups) {
                   groups[0].options.set("use_muon", true);
                   groups[1].options.set("use_muon", false);
                   const std::string params =
                       R"({"lr": 0.01, "weight_decay": 0.1, "ns_method": ")" + method + R"("})";
                   return make_optimizer("Muon", Json::parse(params), std::move(groups));
                 },
                 rule, 2e-4};  // the iteration enlarges the errors of small singular values
    expect_reference(c, {{7, 5}, {5, 7}, {9, 9}, {5, 3, 2, 2}}, {{3, 11}, {1}});
  }
}

TEST(Optimizers, LambTellsItsCoefficients) {
  Lamb lamb(std::vector<ParamGroup>(1));
  Group group(0, {{4}, {3}}, at::detail::createCPUGenerator(1));
  group.slice.master.narrow(0, 4, 3).zero_();  // a norm of 0: no ratio
  EXPECT_TRUE(lamb.lamb_coeffs(0).empty());
  group.slice.gradient.fill_(1.0);
  const double norm = group.slice.master.narrow(0, 0, 4).norm().item<double>();
  lamb.step(group.slice, 1.0);
  const auto coeffs = lamb.lamb_coeffs(0);
  ASSERT_EQ(coeffs.size(), 2U);
  // m / sqrt(v) of the first step is (1 - b1) / sqrt(1 - b2) everywhere
  EXPECT_NEAR(coeffs[0], std::min(10.0, norm / (2 * 0.1 / std::sqrt(0.001))), 1e-4);
  EXPECT_EQ(coeffs[1], 1.0);
}

TEST(Optimizers, NameTheCutParameterIfTheyNeedItWhole) {
  for (const std::string type : {"Lamb", "Muon"}) {
    const auto optimizer = make_optimizer(type, Json::object(), std::vector<ParamGroup>(1));
    EXPECT_FALSE(optimizer->is_elementwise());
    Group group(0, {{4, 3}}, at::detail::createCPUGenerator(1));
    group.segments[0].in_slice = {0, 6};
    EXPECT_ERROR(UsageError, optimizer->step(group.slice, 1.0), "holds 6 of the 12 elements of parameter 0");
    group.slice.segments = nullptr;
    EXPECT_ERROR(UsageError, optimizer->step(group.slice, 1.0), "slice 0 names no segments") << type;
  }
}

TEST(Optimizers, MuonTellsMatricesFromTheRest) {
  EXPECT_TRUE(uses_muon("layers.0.weight", 2));
  EXPECT_FALSE(uses_muon("layers.0.bias", 1));
  EXPECT_FALSE(uses_muon("model.Embed_tokens.weight", 2));
  EXPECT_FALSE(uses_muon("LM_head.weight", 2));

  // One group of both kinds: as two groups of one kind each would be, at a rate that a schedule changed.
  const std::string params = R"({"muon_lr": 0.02, "adam_lr": 0.001})";
  std::vector<ParamGroup> one(1), two(2);
  one[0].param_names = {"weight", "embed"};
  two[0].options.set("use_muon", true);
  two[1].options.set("use_muon", false);
  const auto mixed = make_optimizer("muon", Json::parse(params), one);
  const auto apart = make_optimizer("Muon", Json::parse(params), two);
  EXPECT_EQ(apart->param_groups()[0].lr(), 0.02);
  EXPECT_EQ(apart->param_groups()[1].lr(), 0.001);
  EXPECT_FALSE(apart->param_groups()[1].options.contains("momentum"));
  Group both(0, {{4, 6}, {5, 3}}, at::detail::createCPUGenerator(2));
  Group matrix(0, {{4, 6}}, at::detail::createCPUGenerator(3)),
      rest(1, {{5, 3}}, at::detail::createCPUGenerator(3));
  matrix.slice.master.narrow(0, 0, 24).copy_(both.slice.master.narrow(0, 0, 24));
  rest.slice.master.narrow(0, 0, 15).copy_(both.slice.master.narrow(0, 24, 15));
  for (int i = 0; i < 3; ++i) {
    both.slice.gradient =
        at::randn({39 + kPadding}, at::detail::createCPUGenerator(static_cast<uint64_t>(i)), at::kFloat);
    matrix.slice.gradient.narrow(0, 0, 24).copy_(both.slice.gradient.narrow(0, 0, 24));
    rest.slice.gradient.narrow(0, 0, 15).copy_(both.slice.gradient.narrow(0, 24, 15));
    mixed->step(both.slice, 1.0);
    apart->step(matrix.slice, 1.0);
    apart->step(rest.slice, 1.0);
    mixed->param_groups()[0].set_lr(0.01);
    apart->param_groups()[0].set_lr(0.01);
    apart->param_groups()[1].set_lr(0.0005);
  }
  EXPECT_TRUE(at::equal(both.slice.master.narrow(0, 0, 24), matrix.slice.master.narrow(0, 0, 24)));
  EXPECT_TRUE(at::equal(both.slice.master.narrow(0, 24, 15), rest.slice.master.narrow(0, 0, 15)));
}

TEST(Optimizers, MuonNamesAParameterThatIsNoMatrix) {
  std::vector<ParamGroup> groups(1);
  groups[0].options.set("use_muon", true);
  groups[0].param_names = {"norm.bias"};
  Muon muon(groups);
  Group group(0, {{4}}, at::detail::createCPUGenerator(1));
  EXPECT_ERROR(UsageError, muon.step(group.slice, 1.0), "'norm.bias'");
}

}  // namespace
}  // namespace deepspeed::optim
