// Changing the model after initialize() has no effect on training; this warns about it once.
#pragma once

#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "deepspeed/engine/model/model.h"
#include "deepspeed/zero/params/param_store.h"

namespace deepspeed {

class ModelChanges {
 public:
  /// Records the current state of the model. store: the parameters that the optimizer updates.
  ModelChanges(const EngineModel& model, const zero::ParamStore& store);

  /// Warns of parameters that were registered, unfrozen or frozen since the last call. Each is named once. If
  /// nothing changed this costs some nanoseconds per parameter.
  void warn();

 private:
  struct Known {
    NamedTensor param;
    bool is_trained = false;
    bool needed_gradient = false;  // at initialize()
    bool was_named = false;
  };

  void warn_of_registered();
  /// Warns of parameters whose requires_grad has changed since initialize(). is_trained selects the trained
  /// parameters or the others; the log says `what` changed.
  void warn_of_flags(bool is_trained, const char* what);

  std::vector<Known> known_;
  std::unordered_set<const at::TensorImpl*> seen_;  // all parameters of the model
  std::function<std::vector<NamedTensor>()> take_registered_;
};

}  // namespace deepspeed
