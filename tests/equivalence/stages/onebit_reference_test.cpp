// Optimizers whose ranks exchange 1 bit an element against slow ones that a process computes alone for all
// ranks, by the formulas of their papers and of DeepSpeed's classes.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "deepspeed/kernels/sign_compression.h"

#include "tests/equivalence/stages/onebit_training.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::testing {
namespace {

constexpr int64_t kMatricesOfNet = 2 * kRowsOfNet * kColumnsOfNet;
constexpr int64_t kNumelOfNet = kMatricesOfNet + kColumnsOfNet;
constexpr double kBeta1 = 0.9, kBeta2 = 0.999, kEps = 1e-8, kSlowRate = 0.003, kDecay = 0.01;

using PerRank = std::vector<at::Tensor>;

/// Means of vectors (kNumelOfNet) over ranks: of the matrices with a bit an element, of the bias exact.
class SlowMeans {
 public:
  explicit SlowMeans(int ranks) : chunk_(chunk_of(ranks)), server_(at::zeros({ranks * chunk_})) {
    for (int rank = 0; rank < ranks; ++rank) workers_.push_back(at::zeros({ranks * chunk_}));
  }

  void forget() {
    server_.zero_();
    for (at::Tensor& worker : workers_) worker.zero_();
  }
  at::Tensor mean(const PerRank& values) {
    at::Tensor sum = at::zeros_like(server_), bias = at::zeros({kColumnsOfNet});
    for (size_t rank = 0; rank < values.size(); ++rank) {
      at::Tensor padded = at::zeros_like(server_);
      padded.narrow(0, 0, kMatricesOfNet).copy_(values[rank].narrow(0, 0, kMatricesOfNet));
      sum += compressed(padded, workers_[rank]);
      workers_[rank].narrow(0, kMatricesOfNet, workers_[rank].numel() - kMatricesOfNet).zero_();
      bias += values[rank].narrow(0, kMatricesOfNet, kColumnsOfNet);
    }
    const double ranks = double(values.size());
    return at::cat({compressed(sum / ranks, server_).narrow(0, 0, kMatricesOfNet), bias / ranks});
  }

 private:
  static int64_t chunk_of(int ranks) {
    const int64_t blocks = (kMatricesOfNet + kernels::kSignBlock - 1) / kernels::kSignBlock;
    return (blocks + ranks - 1) / ranks * kernels::kSignBlock;
  }
  static at::Tensor compressed(const at::Tensor& x, at::Tensor& error) {
    const at::Tensor wanted = (x + error).view({-1, kernels::kSignBlock});
    const at::Tensor scale = wanted.square().mean(1, true).sqrt();
    const at::Tensor sent = at::where(wanted >= 0, scale.expand_as(wanted), -scale.expand_as(wanted));
    error = (wanted - sent).view({-1});
    return sent.reshape({-1});
  }

  int64_t chunk_;
  at::Tensor server_;
  PerRank workers_;
};

/// The training of all ranks, each with weights of its own.
struct SlowTraining {
  explicit SlowTraining(int ranks)
      : means(ranks), m(size_t(ranks), at::zeros({kNumelOfNet})), v(at::zeros({kNumelOfNet})) {
    const ZeroppNet net;
    const at::Tensor start = at::cat({net.up.view({-1}), net.down.view({-1}), net.bias}).detach();
    weights.assign(size_t(ranks), start);
  }

  PerRank gradients(int step) const {
    PerRank all;
    for (size_t rank = 0; rank < weights.size(); ++rank) {
      ZeroppNet net;
      {
        const at::NoGradGuard no_grad;
        const int64_t half = kMatricesOfNet / 2;
        net.up.copy_(weights[rank].narrow(0, 0, half).view_as(net.up));
        net.down.copy_(weights[rank].narrow(0, half, half).view_as(net.down));
        net.bias.copy_(weights[rank].narrow(0, kMatricesOfNet, kColumnsOfNet));
      }
      net.forward(zeropp_batch(step, int(rank))).backward();
      all.push_back(at::cat({net.up.grad().view({-1}), net.down.grad().view({-1}), net.bias.grad()}));
    }
    return all;
  }
  static at::Tensor exact_mean(const PerRank& values) { return at::stack(values).mean(0); }
  at::Tensor denominator() const { return v.sqrt() + kEps; }
  void set_all(PerRank& of_ranks, const at::Tensor& value) const { of_ranks.assign(of_ranks.size(), value); }

  SlowMeans means;
  PerRank weights, m;
  at::Tensor v;
};

void take_exact(SlowTraining& all, const PerRank& gradients) {
  const at::Tensor gradient = SlowTraining::exact_mean(gradients);
  all.set_all(all.m, all.m[0] * kBeta1 + gradient * (1 - kBeta1));
  all.v = all.v * kBeta2 + gradient.square() * (1 - kBeta2);
}

void exchange_momenta(SlowTraining& all, const PerRank& gradients, const at::Tensor& scaling) {
  PerRank momenta;
  for (size_t rank = 0; rank < gradients.size(); ++rank)
    momenta.push_back((all.m[rank] * kBeta1 + gradients[rank] * (1 - kBeta1)) * scaling);
  all.set_all(all.m, all.means.mean(momenta) / scaling);
}

void move_by_adam(SlowTraining& all) {
  const at::Tensor& w = all.weights[0];
  all.set_all(all.weights, w - kSlowRate * (all.m[0] / all.denominator() + kDecay * w));
}

void slow_onebit_adam(SlowTraining& all, int steps, int freeze_step) {
  for (int step = 1; step <= steps; ++step) {
    const PerRank gradients = all.gradients(step - 1);
    if (step <= freeze_step) {
      take_exact(all, gradients);
    } else {
      exchange_momenta(all, gradients, at::ones({1}));
    }
    move_by_adam(all);
  }
}

void slow_onebit_lamb(SlowTraining& all, int steps, int freeze_step) {
  const std::vector<Interval> params = {
      {0, kMatricesOfNet / 2}, {kMatricesOfNet / 2, kMatricesOfNet}, {kMatricesOfNet, kNumelOfNet}};
  const auto part = [](const at::Tensor& flat, const Interval& of) {
    return flat.narrow(0, of.begin, of.numel());
  };
  const auto norm = [](const at::Tensor& values) { return values.to(at::kDouble).norm().item<double>(); };
  std::vector<double> average(3, 0.0), last_factor(3, 1.0);
  at::Tensor fresh, scaling = at::ones({kNumelOfNet});
  for (int step = 1; step <= steps; ++step) {
    const PerRank gradients = all.gradients(step - 1);
    const at::Tensor before = all.m[0];
    at::Tensor w = all.weights[0].clone();
    if (step <= freeze_step) {
      take_exact(all, gradients);
    } else {
      exchange_momenta(all, gradients, scaling);
      const at::Tensor made_again = (all.m[0] - kBeta1 * before) / (1 - kBeta1);
      fresh = fresh * kBeta2 + made_again.square() * (1 - kBeta2);
    }
    const at::Tensor direction = all.m[0] / all.denominator(), update = direction + kDecay * w;
    for (size_t index = 0; index < params.size(); ++index) {
      const Interval& of = params[index];
      double coefficient = 0.0;
      if (step <= freeze_step) {
        coefficient = std::clamp(norm(part(w, of)) / norm(part(update, of)), 0.01, 10.0);
        average[index] = 0.9 * average[index] + 0.1 * coefficient;
      } else {
        double factor = (part(all.denominator(), of) / (part(fresh, of).sqrt() + kEps)).max().item<double>();
        const double ratio = std::min(1.0, norm(part(direction, of)) / norm(part(update, of)));
        factor = std::clamp(factor * ratio + 1.0 - ratio, 0.5, 4.0);
        factor = std::clamp(factor, 0.9 * last_factor[index], 1.1 * last_factor[index]);
        last_factor[index] = factor;
        coefficient = average[index] * factor;
      }
      part(w, of).sub_(kSlowRate * coefficient * part(update, of));
    }
    all.set_all(all.weights, w);
    if (step != freeze_step) continue;
    fresh = all.v;
    std::vector<double> scales;
    for (const Interval& of : params)
      scales.push_back(norm(part(all.m[0], of)) / std::sqrt(double(of.numel())));
    for (size_t index = 0; index < params.size(); ++index)
      part(scaling, params[index]).fill_((scales[0] + scales[1] + scales[2]) / 3 / scales[index]);
  }
}

// Step by step as zero_one_adam() of onebit_training.h says.
void slow_zero_one_adam(SlowTraining& all, const std::string& acts) {
  at::Tensor shared = all.weights[0];
  PerRank change;
  double rates = 0.0;
  for (size_t step = 0; step < acts.size(); ++step) {
    const PerRank gradients = all.gradients(int(step));
    if (acts[step] == 'v') take_exact(all, gradients);
    if (acts[step] == 'c') all.set_all(all.m, all.m[0] * kBeta1 + all.means.mean(gradients) * (1 - kBeta1));
    if (acts[step] == 'v' || acts[step] == 'c') {
      move_by_adam(all);
      shared = all.weights[0];
      continue;
    }
    if (step == acts.find_last_of("vc") + 1) all.means.forget();
    if (change.empty()) change.assign(gradients.size(), at::zeros({kNumelOfNet}));
    for (size_t rank = 0; rank < gradients.size(); ++rank) {
      all.m[rank] = all.m[rank] * kBeta1 + gradients[rank] * (1 - kBeta1);
      change[rank] =
          change[rank] - kSlowRate * (all.m[rank] / all.denominator() + kDecay * all.weights[rank]);
      all.weights[rank] = shared + change[rank];
    }
    rates += kSlowRate;
    if (acts[step] != 'x') continue;
    PerRank sent;
    for (const at::Tensor& own : change) sent.push_back(own * all.denominator());
    const at::Tensor mean = all.means.mean(sent);
    all.set_all(all.m, -mean / rates);
    shared = shared + mean / all.denominator();
    all.set_all(all.weights, shared);
    change.clear();
    rates = 0.0;
  }
}

// A sum in another order turns the sign of a few numbers near zero, and so moves those by what a bit stands
// for: the difference is small on average.
void expect_slow_one(const Json& config, const comm::World& world, int steps,
                     const std::function<void(SlowTraining&)>& train) {
  SlowTraining slow(world.size());
  const at::Tensor start = slow.weights[0];
  train(slow);
  const at::Tensor expected = slow.weights[size_t(world.rank())];
  const at::Tensor got = weights_after(config, world, steps);
  const double way = (expected - start).abs().mean().item<double>();
  EXPECT_LT((got - expected).abs().mean().item<double>(), 0.01 * way) << config;
  EXPECT_GT(way, 1e-4);
}

TEST(OneBitReference, AdamIsTheSlowOneOfAllRanks) {
  for (const int ranks : {2, 3}) {
    run_ranks(ranks, [](comm::World& world) {
      expect_slow_one(onebit_adam(4, 0), world, 10, [](SlowTraining& all) { slow_onebit_adam(all, 10, 4); });
    });
  }
}

TEST(OneBitReference, LambIsTheSlowOneOfAllRanks) {
  for (const int ranks : {2, 3}) {
    run_ranks(ranks, [](comm::World& world) {
      for (const int stage : {0, 1}) {
        expect_slow_one(onebit_lamb(4, stage), world, 10,
                        [](SlowTraining& all) { slow_onebit_lamb(all, 10, 4); });
      }
    });
  }
}

TEST(OneBitReference, ZeroOneAdamIsTheSlowOneOfAllRanks) {
  for (const int ranks : {2, 3}) {
    run_ranks(ranks, [](comm::World& world) {
      const std::string acts = "vvvvcvxx.x.x.";  // the last step is each rank's own
      expect_slow_one(zero_one_adam(6), world, int(acts.size()),
                      [&](SlowTraining& all) { slow_zero_one_adam(all, acts); });
    });
  }
}

}  // namespace
}  // namespace deepspeed::testing
