// Stochastic gradient descent with momentum for flat slices. The rules and the state's name are those of
// torch's SGD.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed::optim {

/// Steps slices by SGD. A group's options are lr, momentum, dampening, weight_decay (L2), nesterov, with
/// torch's defaults (1e-3, 0, 0, 0, false).
class Sgd : public Optimizer {
 public:
  /// Makes the optimizer. Throws UsageError for nesterov without momentum or with dampening.
  explicit Sgd(std::vector<ParamGroup> groups);

  std::string name() const override { return "SGD"; }
  bool is_elementwise() const override { return true; }
  bool takes_scale_on_device() const override { return true; }
  bool skips_on_device() const override { return true; }
  void step(const FlatSlice& slice, double gradient_scale) override;
  void forget_step(size_t slice_id) override;
  SliceState state(size_t slice_id) const override;
  void load_state(size_t slice_id, const SliceState& state) override;
  void check_state(const SliceState& state) const override;
  int64_t state_bytes() const override;

 private:
  struct Momentum {
    at::Tensor buffer;  // (n) fp32; undefined if the momentum is 0
    int64_t step = 0;
    bool is_loaded = false;
    bool made_buffer = false;  // by the last step
  };

  std::unordered_map<size_t, Momentum> momenta_;  // by slice id
};

}  // namespace deepspeed::optim
