// The marks that torch_autocast sets on parameters.
#include "deepspeed/precision/autocast.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"

namespace deepspeed::python {

void bind_autocast(py::module_& module) {
  module.def("find_autocast_dtype", &precision::find_autocast_dtype, "param"_a);
  module.def("set_autocast_dtype", &precision::set_autocast_dtype, "param"_a, "dtype"_a);
  module.def("clear_autocast_dtype", &precision::clear_autocast_dtype, "param"_a);
  module.def("is_autocast_initialized", &precision::is_autocast_initialized);
}

}  // namespace deepspeed::python
