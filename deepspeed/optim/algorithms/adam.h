// Adam and AdamW for flat slices, using kernels::adam.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <c10/core/ScalarType.h>

#include "deepspeed/kernels/adam.h"
#include "deepspeed/optim/slices/optimizer.h"

namespace deepspeed::optim {

/// Holds the options that apply to all groups. A group's own options are lr, betas, eps, weight_decay,
/// bias_correction, with DeepSpeed's defaults (1e-3, (0.9, 0.999), 1e-8, 0, true).
struct AdamOptions {
  std::string class_name = "FusedAdam";  // or "DeepSpeedCPUAdam", "AdamW", "Adam"
  bool adamw_mode = true;                // decoupled weight decay; false: L2
  bool amsgrad = false;                  // divide by the largest second moment so far (Reddi et al. 2018)
  // kFloat; or, with half the memory, kBFloat16 (rounded stochastically) or kHalf (rounded to nearest). kHalf
  // loses second moments below 3e-8.
  at::ScalarType moment_dtype = at::kFloat;
  uint64_t rounding_seed = 0;  // seeds the stochastic rounding
};

class Adam : public Optimizer {
 public:
  /// Makes the optimizer. Throws UsageError for a moment dtype other than fp32, bf16 and fp16, and for
  /// amsgrad with 16-bit moments.
  Adam(std::vector<ParamGroup> groups, const AdamOptions& options);

  std::string name() const override { return options_.class_name; }
  bool is_elementwise() const override { return true; }
  bool steps_split_masters() const override { return !options_.amsgrad; }
  bool steps_sixteen_bit_masters() const override { return !options_.amsgrad; }
  bool takes_scale_on_device() const override { return true; }
  bool skips_on_device() const override { return true; }
  bool writes_over_gradients() const override { return !options_.amsgrad; }
  bool takes_steps_back() const override { return !options_.amsgrad && options_.moment_dtype == at::kFloat; }
  at::ScalarType state_dtype() const override { return options_.moment_dtype; }
  void step(const FlatSlice& slice, double gradient_scale) override;
  void forget_step(size_t slice_id) override;
  /// Reverts the slice's last step by kernels::adam_rollback(). Throws UsageError before the first step.
  void take_back(const FlatSlice& slice, double gradient_scale) override;
  SliceState state(size_t slice_id) const override;
  void load_state(size_t slice_id, const SliceState& state) override;
  void check_state(const SliceState& state) const override;
  int64_t state_bytes() const override;
  const AdamOptions& options() const { return options_; }

 protected:
  struct Moments {
    at::Tensor exp_avg;         // (n) moment_dtype; all are fp64 for fp64 masters
    at::Tensor exp_avg_sq;      // (n) moment_dtype
    at::Tensor max_exp_avg_sq;  // (n) fp32; undefined without amsgrad
    int64_t step = 0;
    bool is_loaded = false;
  };

  /// Returns the moments of a slice; zeros at first use.
  Moments& moments_of(const FlatSlice& slice);
  /// Returns the moments of a slice that has made a step or was loaded.
  Moments& moments_at(size_t slice_id) { return moments_.at(slice_id); }
  /// Returns how many steps a slice has made; 0 before its first.
  int64_t steps_of(size_t slice_id) const;
  /// Returns whether every slice has made at least this many steps; false without slices.
  bool all_have_made(int64_t steps) const;
  /// Steps the slice without bias correction, whatever its group says. `betas` replace the group's if given.
  void step_uncorrected(const FlatSlice& slice, double gradient_scale,
                        const std::optional<std::pair<double, double>>& betas = {});

 private:
  std::vector<std::string> state_names() const;
  /// Returns the kernel's arguments for a step of the slice; `step` counts from 1.
  kernels::AdamStep arguments_of(const FlatSlice& slice, int64_t step, double gradient_scale) const;
  void step_moments(const FlatSlice& slice, const Moments& moments, const kernels::AdamStep& step);
  void step_amsgrad(const FlatSlice& slice, const Moments& moments, const kernels::AdamStep& step);

  AdamOptions options_;
  std::unordered_map<size_t, Moments> moments_;  // by slice id
};

}  // namespace deepspeed::optim
