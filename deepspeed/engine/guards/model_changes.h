// A program may change its model after initialize() without effect on the training: the log says so once.
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
  /// Notes the model as it is. store: what the optimizer updates.
  ModelChanges(const EngineModel& model, const zero::ParamStore& store);

  /// Warns of parameters that were registered, unfrozen or frozen since the last call, each once. Where
  /// nothing changed that costs some nanoseconds a parameter.
  void warn();

 private:
  struct Known {
    NamedTensor param;
    bool is_trained = false;
    bool needed_gradient = false;  // at initialize()
    bool was_named = false;
  };

  void warn_of_registered();
  /// Warns of the trained parameters, or of the others, whose requires_grad is another one than at
  /// initialize().
  void warn_of_flags(bool is_trained, const char* what);

  std::vector<Known> known_;
  std::unordered_set<const at::TensorImpl*> seen_;  // of the model
  std::function<std::vector<NamedTensor>()> take_registered_;
};

}  // namespace deepspeed
