// The core's world, which consists of the ranks of torch.distributed's default group.
#include "python/core/ranks/world.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/adopt.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/io/queue/transfer_queue.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"

namespace deepspeed::python {
namespace {

comm::World& the_world() {
  static auto& world = *new comm::World;
  return world;
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3));
}

// Makes the world from the ranks of torch.distributed's default group. local_rank and local_size are both -1
// if the environment does not give them.
void adopt_world(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                 const c10::intrusive_ptr<c10d::Store>& store, int local_rank, int local_size,
                 double timeout_seconds) {
  comm::GivenGroup given{group, store, local_rank, local_size};
  given.timeout = milliseconds_of(timeout_seconds);
  the_world() = comm::adopt_as_world(given);
}

// Opens the job's store for torch.distributed's default group. timeout_seconds: 0 means the default.
comm::JobStore open_store(const std::string& init_method, int rank, int world_size, double timeout_seconds) {
  comm::InitOptions options{
      .auto_mpi_discovery = false, .init_method = init_method, .rank = rank, .world_size = world_size};
  if (timeout_seconds > 0) options.timeout = milliseconds_of(timeout_seconds);
  return comm::open_store(options);
}

// has_failed: the script ends with an error, so other ranks may never send what the device waits for.
void leave_world(bool has_failed) {
  the_world() = {};
  has_failed ? comm::abort_process_group() : comm::destroy_process_group();
}

/// Holds groups of torch.distributed until release(). Releasing a group's last reference ends its threads. A
/// thread that has finished a collective then drops its tensors, for which it may need the interpreter's
/// lock. release() therefore runs without the lock. After it, none of these threads is left to ask for the
/// lock when the interpreter has ended.
struct HeldGroups {
  std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups;
};

}  // namespace

comm::World current_world() { return the_world(); }

void bind_world(py::module_& module) {
  module.def("adopt_world", &adopt_world, NoGil(), "group"_a, "store"_a, "local_rank"_a, "local_size"_a,
             "timeout"_a);
  module.def("leave_world", &leave_world, NoGil(), "has_failed"_a);
  py::class_<comm::JobStore>(module, "JobStore")
      .def_readonly("store", &comm::JobStore::store)
      .def_readonly("rank", &comm::JobStore::rank)
      .def_readonly("world_size", &comm::JobStore::world_size)
      .def_readonly("is_one_machine", &comm::JobStore::is_one_machine);
  module.def("open_store", &open_store, NoGil(), "init_method"_a, "rank"_a, "world_size"_a, "timeout"_a);
  py::class_<HeldGroups>(module, "HeldGroups")
      .def(py::init([](std::vector<c10::intrusive_ptr<c10d::ProcessGroup>> groups) {
             return std::make_unique<HeldGroups>(HeldGroups{std::move(groups)});
           }),
           "groups"_a)
      .def(
          "release", [](HeldGroups& held) { held.groups.clear(); }, NoGil());
  module.def("has_world", [] { return static_cast<bool>(the_world()); });
  module.def("num_cuda_devices", &device::num_cuda_devices);
  module.def("why_no_cuda_device", &device::why_no_device);
  module.def("why_no_uring", &io::why_no_uring);
}

}  // namespace deepspeed::python
