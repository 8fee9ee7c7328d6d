// 0/1 Adam: ranks exchange compressed gradients, exact ones ever more rarely, and later take steps of their
// own between exchanges of what these have changed (Lu et al., "Maximizing Communication Efficiency for
// Large-scale Training via 0/1 Adam", 2022).
//
// With g the gradient, b1, b2 the betas, wd the decay, C a compressed mean over ranks (zero_one_intervals.h
// says which step does what):
//   renewal:     m = b1 m + (1 - b1) g;   v = b2 v + (1 - b2) g^2       g: the exact mean
//   between:     m = b1 m + (1 - b1) C(g)
//                p -= lr (m / (sqrt(v) + eps) + wd p)                   after both
//   local step:  m = b1 m + (1 - b1) g;   u -= lr (m / (sqrt(v) + eps) + wd p);   p = w + u
//   exchange:    c = C(u (sqrt(v) + eps));   m = -c / (sum of lr);   w += c / (sqrt(v) + eps);   p = w;   u =
//   0
// w are the weights of the last exchange, the same bits on all ranks. The first local step forgets the errors
// of compressed gradients.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "deepspeed/optim/algorithms/adam.h"
#include "deepspeed/optim/algorithms/zero_one_intervals.h"

namespace deepspeed::optim {

/// As DeepSpeed's: weight decay is decoupled, and the moments' start at 0 is never made up for. Each slice is
/// the whole flat space of its group.
class ZeroOneAdam final : public Adam {
 public:
  ZeroOneAdam(std::vector<ParamGroup> groups, const ZeroOneOptions& options);

  /// Between two exchanges a rank steps all parameters by itself.
  bool steps_cut_parameters() const override { return false; }
  bool compresses_exchange() const override { return true; }
  GradientUse next_gradient() const override;
  bool takes_steps_back() const override { return false; }
  bool steps_split_masters() const override { return false; }
  bool steps_sixteen_bit_masters() const override { return false; }
  bool writes_over_gradients() const override { return false; }
  void step(const FlatSlice& slice, double gradient_scale) override;
  void load_state(size_t slice_id, const SliceState& state) override;
  SliceState own_state(size_t slice_id) const override;
  void load_own_state(size_t slice_id, const SliceState& own, const at::Tensor& master) override;
  int64_t state_bytes() const override;

 private:
  /// What a rank has done since the last exchange.
  struct LocalSteps {
    at::Tensor weights;  // (n) w of the formulas
    at::Tensor change;   // (n) u
    double rates = 0;    // the sum of lr
  };

  void step_locally(const FlatSlice& slice, double gradient_scale, bool exchanges);
  static void follow_writes(const at::Tensor& weights, LocalSteps& local);
  void exchange(const FlatSlice& slice, const Moments& moments, LocalSteps& local, double eps);

  const ZeroOneOptions options_;
  std::unordered_map<size_t, ZeroOneIntervals> intervals_;  // by slice id
  std::unordered_map<size_t, LocalSteps> local_;            // of slices that are between two exchanges
};

}  // namespace deepspeed::optim
