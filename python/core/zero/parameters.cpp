// Shows stage 3's parameters to Python: scopes in which they are whole, and the state of each.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/access/gather_pool.h"
#include "deepspeed/zero/construction/construction.h"
#include "deepspeed/zero/construction/construction_mode.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/init.h"
#include "deepspeed/zero/param_access.h"
#include "deepspeed/zero/storage/storage_record.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"
#include "python/core/objects/json.h"
#include "python/core/ranks/mpu.h"
#include "python/core/ranks/world.h"

namespace deepspeed::python {
namespace {

std::shared_ptr<zero::NewParameter> born_under_init(const at::Tensor& tensor) {
  return std::dynamic_pointer_cast<zero::NewParameter>(zero::record_of(tensor));
}

/// Partitions a whole parameter that was created under this thread's zero::Init. Ignores other tensors.
/// Collective if it partitions.
void partition_newborn(const at::Tensor& tensor) {
  if (zero::Construction* const construction = zero::current_construction())
    construction->partition_if_born_here(tensor);
}

/// Returns the name of a parameter's ZeroParamStatus, or None for an ordinary tensor.
std::optional<std::string> status_of(const at::Tensor& tensor) {
  if (const auto newborn = born_under_init(tensor))
    return newborn->is_whole() ? "AVAILABLE" : "NOT_AVAILABLE";
  const auto record = zero::partitioned_storage_of(tensor);
  if (!record) return std::nullopt;
  switch (record->state()) {
    case zero::PartitionedStorage::State::kWhole:
      return "AVAILABLE";
    case zero::PartitionedStorage::State::kGathering:
      return "INFLIGHT";
    case zero::PartitionedStorage::State::kPartitioned:
      return "NOT_AVAILABLE";
  }
  return std::nullopt;
}

/// Returns this rank's shard of a partitioned parameter, or null for other tensors.
std::shared_ptr<zero::Shard> shard(const at::Tensor& tensor) {
  if (const auto newborn = born_under_init(tensor)) return newborn->shard();
  const auto record = zero::partitioned_storage_of(tensor);
  return record ? record->shard() : nullptr;
}

int64_t shard_numel(const at::Tensor& tensor) {
  const auto own = shard(tensor);
  return own ? own->numel() : 0;
}

/// Returns the values of this rank's shard. Returns None if the values are on a disk or the tensor is
/// ordinary.
std::optional<at::Tensor> shard_of(const at::Tensor& tensor) {
  const auto own = shard(tensor);
  if (!own) return std::nullopt;
  const at::Tensor memory = own->memory();
  if (!memory.defined()) return std::nullopt;
  return memory;
}

/// Replaces the values of this rank's shard of a partitioned parameter whose zero::Init has ended. Throws
/// UsageError for other tensors.
void set_shard(const at::Tensor& tensor, const at::Tensor& values) {
  const auto storage = zero::partitioned_storage_of(tensor);
  if (!storage)
    raise<UsageError>("set_shard() got a tensor that is not partitioned, expected a parameter of stage 3");
  storage->pool()->set_shard(*storage, values);
}

/// Holds a scope of the core that Python opens and closes.
template <class T>
class Scope {
 public:
  template <class... Args>
  explicit Scope(Args&&... args) : held_(std::make_unique<T>(std::forward<Args>(args)...)) {}
  ~Scope() { forget(); }

  /// Ends the scope. Collective.
  void close() {
    const auto held = std::move(held_);
    if (held) held->close();
  }
  /// Ends the scope as an exception would, without communication.
  void forget() noexcept {
    if (const auto held = std::move(held_)) held->forget();
  }

 private:
  std::unique_ptr<T> held_;
};

using Gathered = Scope<zero::GatheredParameters>;
using InitScope = Scope<zero::Init>;

/// Holds the ranks over which zero.Init partitions parameters: those of a group, or all.
struct InitRanks {
  /// ranks: global ranks; nullopt: all.
  explicit InitRanks(const std::optional<std::vector<int>>& ranks) {
    if (ranks) group = group_of_ranks("zero.Init", *ranks);
  }
  comm::ProcessGroup group;
};

/// Returns the ranks over which a parameter is partitioned. For a parameter that is still whole, these are
/// the ranks of this thread's zero::Init, or all ranks.
InitRanks ranks_of_parameter(const at::Tensor& param) {
  InitRanks ranks(std::nullopt);
  if (const auto storage = zero::partitioned_storage_of(param)) {
    ranks.group = storage->pool()->all_ranks();
  } else if (const zero::Construction* const construction = zero::current_construction()) {
    ranks.group = construction->ranks().data;
  }
  return ranks;
}

zero::InitArguments init_arguments(const InitRanks& ranks, const std::optional<py::dict>& config,
                                   const std::string& remote_device, bool pin_memory,
                                   std::optional<at::ScalarType> dtype) {
  zero::InitArguments arguments;
  arguments.data_parallel_group = ranks.group;
  if (!ranks.group && current_world().size() > 1) arguments.stays_whole = is_marked_parallel;
  if (config) arguments.config_dict_or_path = config::ConfigSource(to_json(*config, ""));
  arguments.remote_device = remote_device;
  arguments.pin_memory = pin_memory;
  arguments.dtype = dtype;
  arguments.world = current_world();
  return arguments;
}

std::unique_ptr<InitScope> make_init(const InitRanks& ranks, const std::optional<py::dict>& config,
                                     const std::string& remote_device, bool pin_memory,
                                     std::optional<at::ScalarType> dtype) {
  zero::InitArguments arguments = init_arguments(ranks, config, remote_device, pin_memory, dtype);
  const py::gil_scoped_release release;
  return std::make_unique<InitScope>(std::move(arguments));
}

/// Partitions the parameters of a model that is already built. Collective.
void partition_module(const InitRanks& ranks, const std::vector<std::pair<std::string, at::Tensor>>& params,
                      const std::optional<py::dict>& config, const std::string& remote_device,
                      bool pin_memory, std::optional<at::ScalarType> dtype) {
  zero::InitArguments arguments = init_arguments(ranks, config, remote_device, pin_memory, dtype);
  for (const auto& [name, tensor] : params) arguments.parameters.push_back({name, tensor});
  const py::gil_scoped_release release;
  zero::Init(std::move(arguments)).close();
}

}  // namespace

void bind_parameters(py::module_& module) {
  module.def("status_of", &status_of, "tensor"_a);
  module.def(
      "param_id",
      [](const at::Tensor& tensor) {
        return std::dynamic_pointer_cast<zero::HoldableStorage>(zero::record_of(tensor))->id();
      },
      "tensor"_a);
  module.def(
      "param_name",
      [](const at::Tensor& tensor) {
        return std::dynamic_pointer_cast<zero::HoldableStorage>(zero::record_of(tensor))->name();
      },
      "tensor"_a);
  module.def("partition_newborn", &partition_newborn, NoGil(), "tensor"_a);
  module.def("partition_module", &partition_module, "ranks"_a, "parameters"_a, "config"_a, "remote_device"_a,
             "pin_memory"_a, "dtype"_a);
  module.def("shard_numel", &shard_numel, "tensor"_a);
  module.def(
      "is_partitioned", [](const at::Tensor& tensor) { return zero::record_of(tensor) != nullptr; },
      "tensor"_a);
  module.def("make_whole", &zero::make_whole, NoGil(), "params"_a);
  module.def("shard_of", &shard_of, "tensor"_a);
  module.def("set_shard", &set_shard, NoGil(), "tensor"_a, "values"_a);
  module.def(
      "is_persistent",
      [](const at::Tensor& tensor) {
        const auto record = zero::partitioned_storage_of(tensor);
        return record && record->is_persistent();
      },
      "tensor"_a);
  py::class_<Gathered>(module, "GatheredParameters")
      .def(py::init<const std::vector<at::Tensor>&, std::optional<int>>(), NoGil(), "params"_a,
           "modifier_rank"_a)
      .def("close", &Gathered::close, NoGil())
      .def("forget", &Gathered::forget, NoGil());
  py::class_<zero::ParameterAccess>(module, "ParameterAccess")
      .def(py::init([](const std::vector<at::Tensor>& params) {
             return std::make_unique<zero::ParameterAccess>(params);
           }),
           NoGil(), "params"_a);
  py::class_<InitRanks>(module, "InitRanks")
      .def(py::init<const std::optional<std::vector<int>>&>(), NoGil(), "ranks"_a);
  module.def("ranks_of_parameter", &ranks_of_parameter, "tensor"_a);
  py::class_<InitScope>(module, "Init")
      .def(py::init(&make_init), "ranks"_a, "config"_a, "remote_device"_a, "pin_memory"_a, "dtype"_a)
      .def("close", &InitScope::close, NoGil())
      .def("forget", &InitScope::forget, NoGil());
}

}  // namespace deepspeed::python
