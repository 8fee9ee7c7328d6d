#include "python/core/ranks/mpu.h"

#include <string>
#include <utility>

#include "deepspeed/base/error.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"
#include "python/core/ranks/world.h"

namespace deepspeed::python {
namespace {

using Ranks = std::vector<int>;  // global ranks, ascending

class ScriptsMpu : public Mpu {
 public:
  ScriptsMpu(const Ranks& data, const Ranks& model, const Ranks& tensor)
      : data_(group_of_ranks("mpu data", data)),
        model_(group_of_ranks("mpu model", model)),
        tensor_(group_of_ranks("mpu tensor", tensor)) {}

  comm::ProcessGroup get_data_parallel_group() const override { return data_; }
  comm::ProcessGroup get_model_parallel_group() const override { return model_; }
  comm::ProcessGroup get_tensor_model_parallel_group() const override { return tensor_; }
  bool is_model_parallel_parameter(const at::Tensor& param) const override {
    const py::gil_scoped_acquire gil;
    return is_marked_parallel(param);
  }

 private:
  comm::ProcessGroup data_, model_, tensor_;
};

}  // namespace

comm::ProcessGroup group_of_ranks(const std::string& what, const Ranks& ranks) {
  const comm::World world = current_world();
  if (!world)
    raise<UsageError>(what, ": there is no process group; call deepspeed.init_distributed() before");
  std::string name = what;
  for (const int rank : ranks) name += message(" ", rank);
  return world.own_group(name, "", ranks);
}

bool is_marked_parallel(const at::Tensor& param) {
  const py::object object = py::cast(param);
  for (const char* mark : {"model_parallel", "tensor_model_parallel"}) {
    if (py::bool_(py::getattr(object, mark, py::bool_(false)))) return true;
  }
  return false;
}

void bind_mpu(py::module_& module) {
  py::class_<Mpu, std::shared_ptr<Mpu>>(module, "Mpu")
      .def(py::init([](const Ranks& data, const Ranks& model, const Ranks& tensor) -> std::shared_ptr<Mpu> {
             const py::gil_scoped_release release;
             return std::make_shared<ScriptsMpu>(data, model, tensor);
           }),
           "data"_a, "model"_a, "tensor"_a);
}

}  // namespace deepspeed::python
