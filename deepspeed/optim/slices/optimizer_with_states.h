// Base class of optimizers whose whole state is one SliceStates: it implements the state functions of
// Optimizer.
#pragma once

#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/optim/slices/slice_states.h"

namespace deepspeed::optim {

class DEEPSPEED_API OptimizerWithStates : public Optimizer {
 public:
  /// Takes the arguments of Optimizer and of SliceStates, and throws what their constructors throw.
  OptimizerWithStates(std::vector<ParamGroup> groups, std::vector<std::string> names,
                      at::ScalarType dtype = at::kFloat,
                      const std::source_location& where = std::source_location::current())
      : Optimizer(std::move(groups)), states_(std::move(names), dtype, where) {}

  at::ScalarType state_dtype() const override { return states_.dtype(); }
  SliceState state(size_t slice_id) const override { return states_.state(slice_id); }
  void load_state(size_t slice_id, const SliceState& state) override { states_.load_state(slice_id, state); }
  void check_state(const SliceState& state) const override { states_.check_state(state); }
  int64_t state_bytes() const override { return states_.bytes(); }

 protected:
  SliceStates states_;
};

}  // namespace deepspeed::optim
