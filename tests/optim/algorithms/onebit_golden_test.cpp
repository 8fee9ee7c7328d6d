// DeepSpeed's own 1-bit optimizers, recorded by tests/golden/deepspeed_optimizers/record_onebit.py, against
// ours. What ranks exchange arrives as it is there, and so it does on one rank here.
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"
#include "deepspeed/optim/algorithms/zero_one_adam.h"
#include "deepspeed/optim/factory.h"
#include "deepspeed/optim/slices/optimizer.h"

#include "tests/places/places.h"

namespace deepspeed::optim {
namespace {

constexpr int64_t kMatrix = 17 * 59, kVector = 517;
constexpr int kRecordedSteps = 20;

at::Tensor recorded_weights(const std::string& name) {
  const std::string path =
      (testing::source_folder() / "tests/golden/deepspeed_optimizers/").string() + name + ".bin";
  std::ifstream file(path, std::ios::binary);
  const at::Tensor values = at::empty({kMatrix + kVector}, at::kFloat);
  file.read(reinterpret_cast<char*>(values.data_ptr()), static_cast<std::streamsize>(values.nbytes()));
  EXPECT_TRUE(file.good() && file.peek() == std::ifstream::traits_type::eof()) << path;
  return values;
}

// Both parameters' elements, each counted from 0.
at::Tensor element_numbers() {
  return at::cat({at::arange(kMatrix, at::kDouble), at::arange(kVector, at::kDouble)});
}

// Repeats the recorder's weights and gradients in one slice.
struct RecordedTraining {
  RecordedTraining() : weights((element_numbers() * 0.11).cos().to(at::kFloat)) {
    segments = {{0, {0, kMatrix}, 0, {17, 59}}, {1, {kMatrix, kMatrix + kVector}, 0, {kVector}}};
    slice.master = weights;
    slice.segments = &segments;
  }
  RecordedTraining(const RecordedTraining&) = delete;
  RecordedTraining& operator=(const RecordedTraining&) = delete;

  void step(Optimizer& optimizer, int number) {
    slice.gradient = ((element_numbers() * 0.37 + 1.1 * number).sin() + 0.02 * number).to(at::kFloat);
    if (optimizer.next_gradient() == GradientUse::kMomentum) {
      const double beta = optimizer.param_groups()[0].options.pair("betas").first;
      const at::Tensor before = optimizer.state(0).tensors[0].second;
      slice.gradient = (before * beta).add_(slice.gradient, 1 - beta);
    }
    optimizer.step(slice, 1.0);
  }

  at::Tensor weights;
  std::vector<Segment> segments;
  FlatSlice slice;
};

std::unique_ptr<Optimizer> make_recorded(const std::string& type, const std::string& params) {
  ParamGroup group;
  group.param_names = {"matrix", "vector"};
  return make_optimizer(type, Json::parse(params), {group}, /*on_host=*/false);
}

// The largest difference after 20 steps, as a part of the largest way that a weight went.
double relative_difference(const std::string& name, const std::string& type, const std::string& params) {
  RecordedTraining training;
  const at::Tensor start = training.weights.clone(), expected = recorded_weights(name);
  const auto optimizer = make_recorded(type, params);
  for (int number = 1; number <= kRecordedSteps; ++number) training.step(*optimizer, number);
  return ((training.weights - expected).abs().max() / (start - expected).abs().max()).item<double>();
}

TEST(OneBitGolden, AdamAgreesWithDeepSpeeds) {
  EXPECT_LT(relative_difference("onebit_adam", "OneBitAdam",
                                R"({"lr": 0.01, "weight_decay": 0.1, "freeze_step": 8})"),
            1e-5);
}

TEST(OneBitGolden, LambAgreesWithDeepSpeeds) {
  EXPECT_LT(relative_difference("onebit_lamb", "OneBitLamb",
                                R"({"lr": 0.01, "weight_decay": 0.1, "freeze_step": 8, "coeff_beta": 0.7})"),
            1e-5);
  EXPECT_LT(relative_difference("onebit_lamb_no_decay", "OneBitLamb",
                                R"({"lr": 0.01, "freeze_step": 8, "factor_threshold": 0.3})"),
            1e-5);
}

TEST(OneBitGolden, ZeroOneAdamAgreesWithDeepSpeeds) {
  EXPECT_LT(relative_difference("zero_one_adam", "ZeroOneAdam",
                                R"({"lr": 0.001, "weight_decay": 0.1, "var_freeze_step": 9,
                                    "var_update_scaler": 2, "local_step_scaler": 3,
                                    "local_step_clipper": 4})"),
            1e-4);
}

TEST(OneBitGolden, ContinuesWithTheSameBitsFromALoadedState) {
  for (const std::string type : {"OneBitAdam", "OneBitLamb", "ZeroOneAdam"}) {
    const std::string params =
        type == "ZeroOneAdam" ? R"({"var_freeze_step": 5, "var_update_scaler": 2, "local_step_scaler": 2})"
                              : R"({"freeze_step": 5})";
    for (const int saved_at : {3, 5, 6, 11, 12}) {
      RecordedTraining training;
      const auto first = make_recorded(type, params), second = make_recorded(type, params);
      for (int number = 1; number <= saved_at; ++number) training.step(*first, number);
      RecordedTraining resumed;
      resumed.weights.copy_(training.weights);
      second->load_state(0, first->state(0));
      second->load_own_state(0, first->own_state(0), resumed.weights);
      for (int number = saved_at + 1; number <= kRecordedSteps; ++number) {
        training.step(*first, number);
        resumed.step(*second, number);
      }
      EXPECT_TRUE(resumed.weights.equal(training.weights)) << type << " saved at " << saved_at;
    }
  }
}

TEST(ZeroOneAdam, ContinuesFromWeightsThatWereWrittenBetweenExchanges) {
  const std::string params = R"({"var_freeze_step": 1, "local_step_scaler": 1, "local_step_clipper": 4})";
  RecordedTraining training, untouched;
  const auto optimizer = make_recorded("ZeroOneAdam", params), other = make_recorded("ZeroOneAdam", params);
  for (int number = 1; number <= 4; ++number) {  // 2 and 4 end with an exchange
    if (number == 4) training.weights[7] = 5.0;
    training.step(*optimizer, number);
    untouched.step(*other, number);
  }
  EXPECT_NEAR(training.weights[7].item<double>(), 5.0, 0.5);
  training.weights[7] = untouched.weights[7];
  EXPECT_TRUE(training.weights.equal(untouched.weights));
}

TEST(OneBitLamb, NamesTheNumbersThatAStateLacks) {
  RecordedTraining training;
  const auto first = make_recorded("OneBitLamb", "{}"), second = make_recorded("OneBitLamb", "{}");
  training.step(*first, 1);
  SliceState state = first->state(0);
  EXPECT_EQ(state.numbers[0].first, "lamb_coeff_freeze");
  EXPECT_EQ(state.numbers[0].second.size(), 2U);
  state.numbers.clear();
  EXPECT_THROW(second->load_state(0, state), UsageError);
}

TEST(ZeroOneIntervals, GrowAsTheirArgumentsSay) {
  ZeroOneIntervals intervals(
      {.var_freeze_step = 9, .var_update_scaler = 2, .local_step_scaler = 3, .local_step_clipper = 4});
  std::string acts;
  for (int step = 1; step <= 24; ++step) {
    EXPECT_EQ(ZeroOneIntervals({9, 2, 3, 4}, step - 1).exchanges(), intervals.exchanges()) << step;
    acts += intervals.renews_variance() ? 'v'
            : intervals.exchanges()     ? 'x'
            : intervals.is_local()      ? '.'
                                        : 'c';
    intervals.advance();
  }
  // Renewals at 1, 2 | 4, 6 | 8; exchanges at 10, 11, 12 | 14 | 16, 20, 24.
  EXPECT_EQ(acts, "vvcvcvcvcxxx.x.x...x...x");
}

}  // namespace
}  // namespace deepspeed::optim
