// The world of the core over the ranks of torch.distributed's default group.
#include "python/core/world.h"

#include <chrono>
#include <string>

#include "python/core/bindings.h"
#include "python/core/hold.h"

namespace deepspeed::python {
namespace {

comm::World& the_world() {
  static auto& world = *new comm::World;
  return world;
}

void join_world(const std::string& backend, const std::string& init_method, int rank, int world_size,
                double timeout_seconds) {
  comm::InitOptions options;
  options.dist_backend = backend;
  options.init_method = init_method;
  options.rank = rank;
  options.world_size = world_size;
  options.verbose = false;
  options.timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1e3));
  the_world() = comm::init_distributed(options);
}

void leave_world() {
  the_world() = {};
  comm::destroy_process_group();
}

}  // namespace

comm::World current_world() { return the_world(); }

void bind_world(py::module_& module) {
  module.def("join_world", &join_world, NoGil());
  module.def("leave_world", &leave_world, NoGil());
  module.def("has_world", [] { return static_cast<bool>(the_world()); });
}

}  // namespace deepspeed::python
