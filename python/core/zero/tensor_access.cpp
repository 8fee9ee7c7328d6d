// deepspeed.utils: access to the optimizer's states of one parameter (engine/tensor_access.h).
#include "deepspeed/engine/tensor_access.h"

#include <optional>

#include "deepspeed/engine/training_engine.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"

namespace deepspeed::python {
namespace {

/// Returns the tensor, or None if it is undefined.
std::optional<at::Tensor> optional_of(at::Tensor tensor) {
  if (!tensor.defined()) return std::nullopt;
  return tensor;
}

}  // namespace

void bind_tensor_access(py::module_& module) {
  module.def("safe_get_full_fp32_param", &safe_get_full_fp32_param, NoGil(), "engine"_a, "param"_a);
  module.def("safe_set_full_fp32_param", &safe_set_full_fp32_param, NoGil(), "engine"_a, "param"_a,
             "value"_a);
  module.def(
      "safe_get_full_optimizer_state",
      [](const TrainingEngine& engine, const at::Tensor& param, const std::string& key) {
        return optional_of(safe_get_full_optimizer_state(engine, param, key));
      },
      NoGil(), "engine"_a, "param"_a, "key"_a);
  module.def("safe_set_full_optimizer_state", &safe_set_full_optimizer_state, NoGil(), "engine"_a, "param"_a,
             "value"_a, "key"_a);
  module.def("safe_get_full_grad", &safe_get_full_grad, NoGil(), "engine"_a, "param"_a);
  module.def("safe_set_full_grad", &safe_set_full_grad, NoGil(), "engine"_a, "param"_a, "value"_a);
  module.def("safe_get_local_fp32_param", &safe_get_local_fp32_param, NoGil(), "engine"_a, "param"_a);
  module.def("safe_set_local_fp32_param", &safe_set_local_fp32_param, NoGil(), "engine"_a, "param"_a,
             "value"_a);
  module.def(
      "safe_get_local_optimizer_state",
      [](const TrainingEngine& engine, const at::Tensor& param, const std::string& key) {
        return optional_of(safe_get_local_optimizer_state(engine, param, key));
      },
      NoGil(), "engine"_a, "param"_a, "key"_a);
  module.def("safe_set_local_optimizer_state", &safe_set_local_optimizer_state, NoGil(), "engine"_a,
             "param"_a, "value"_a, "key"_a);
  module.def("safe_get_local_grad", &safe_get_local_grad, NoGil(), "engine"_a, "param"_a);
  module.def("safe_set_local_grad", &safe_set_local_grad, NoGil(), "engine"_a, "param"_a, "value"_a);
}

}  // namespace deepspeed::python
