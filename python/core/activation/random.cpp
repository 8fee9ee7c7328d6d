// The random number streams that scripts and the core share: the tracker of deepspeed.checkpointing.
#include <memory>
#include <string>
#include <utility>

#include "deepspeed/random/cuda_rng_tracker.h"

#include "python/core/module/bindings.h"

namespace deepspeed::python {
namespace {

using Tracker = CudaRNGStatesTracker;

/// Makes random numbers come from the tracker's state `name`, between __enter__ and __exit__.
class ForkScope {
 public:
  ForkScope(Tracker& tracker, std::string name) : tracker_(tracker), name_(std::move(name)) {}
  void enter() { fork_.reset(new Tracker::Fork(tracker_.fork(name_))); }
  void exit(const py::args&) { fork_.reset(); }

 private:
  Tracker& tracker_;
  std::string name_;
  std::unique_ptr<Tracker::Fork> fork_;
};

}  // namespace

void bind_random(py::module_& module) {
  py::class_<ForkScope>(module, "RngFork")
      .def("__enter__", &ForkScope::enter)
      .def("__exit__", &ForkScope::exit);
  py::class_<Tracker>(module, "CudaRNGStatesTracker",
                      "Holds states of random generators by name. fork(name) draws from one in a scope.")
      .def(py::init<>())
      .def("reset", &Tracker::reset)
      .def("get_states", &Tracker::get_states)
      .def("set_states", &Tracker::set_states, "states"_a)
      .def("add", &Tracker::add, "name"_a, "seed"_a)
      .def(
          "fork", [](Tracker& tracker, const std::string& name) { return ForkScope(tracker, name); },
          "name"_a = kModelParallelRng, py::keep_alive<0, 1>());
  module.def("get_cuda_rng_tracker", &get_cuda_rng_tracker, py::return_value_policy::reference,
             "Returns the process's tracker, whose states checkpoints carry.");
}

}  // namespace deepspeed::python
