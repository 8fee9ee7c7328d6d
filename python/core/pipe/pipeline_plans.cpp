// What is known about a pipeline before it runs: positions of ranks, schedules, and the partition of layers
// into stages.
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "deepspeed/base/error.h"
#include "deepspeed/pipe/module/partition_layers.h"
#include "deepspeed/pipe/schedule/data_parallel_schedule.h"
#include "deepspeed/pipe/schedule/inference_schedule.h"
#include "deepspeed/pipe/schedule/train_schedule.h"
#include "deepspeed/pipe/topology/parallel_ranks.h"
#include "deepspeed/pipe/topology/process_topology.h"

#include "python/core/module/bindings.h"

namespace deepspeed::python {
namespace {

using SchedulePtr = std::unique_ptr<pipe::PipeSchedule>;

SchedulePtr make_schedule(const std::string& name, int micro_batches, int stages, int stage_id) {
  if (name == "TrainSchedule") return std::make_unique<pipe::TrainSchedule>(micro_batches, stages, stage_id);
  if (name == "InferenceSchedule")
    return std::make_unique<pipe::InferenceSchedule>(micro_batches, stages, stage_id);
  if (name == "DataParallelSchedule")
    return std::make_unique<pipe::DataParallelSchedule>(micro_batches, stages, stage_id);
  raise<UsageError>("unknown schedule '", name, "'");
}

/// Returns the names of each step's instructions with their buffers, -1 for no buffer.
std::vector<std::vector<std::pair<std::string, int>>> schedule_steps(const std::string& name,
                                                                     int micro_batches, int stages,
                                                                     int stage_id) {
  std::vector<std::vector<std::pair<std::string, int>>> steps;
  for (const auto& step : make_schedule(name, micro_batches, stages, stage_id)->steps()) {
    auto& named = steps.emplace_back();
    for (const pipe::Instruction& instruction : step)
      named.emplace_back(pipe::name_of(instruction.kind), instruction.buffer_id);
  }
  return steps;
}

/// Returns the position of each rank, in the order of the axes.
std::vector<std::vector<int>> coords_of(const ProcessTopology& topology) {
  std::vector<std::vector<int>> coords;
  for (int rank = 0; rank < topology.world_size(); ++rank) {
    const ProcessCoord coord = topology.get_coord(rank);
    auto& position = coords.emplace_back();
    for (const std::string& axis : topology.get_axis_names()) position.push_back(coord.at(axis));
  }
  return coords;
}

void bind_topology(py::module_& module) {
  py::class_<ProcessTopology>(module, "ProcessTopology")
      .def(py::init<const std::vector<std::string>&, const std::vector<int>&>(), "axes"_a, "dims"_a)
      .def("get_rank", &ProcessTopology::get_rank, "coord"_a)
      .def("coords", &coords_of)
      .def("get_dim", &ProcessTopology::get_dim, "axis"_a)
      .def("get_rank_repr", &ProcessTopology::get_rank_repr, "rank"_a, "omit_axes"_a, "inner_sep"_a,
           "outer_sep"_a)
      .def("get_axis_comm_lists", &ProcessTopology::get_axis_comm_lists, "axis"_a)
      .def("filter_match", &ProcessTopology::filter_match, "filter"_a)
      .def("world_size", &ProcessTopology::world_size);
  py::class_<ParallelRanks>(module, "ParallelRanks")
      .def(py::init<ProcessTopology, int>(), "topology"_a, "rank"_a)
      .def("stage_id", &ParallelRanks::stage_id)
      .def("data_parallel_id", &ParallelRanks::data_parallel_id)
      .def("slice_parallel_rank", &ParallelRanks::slice_parallel_rank)
      .def("pipe_parallel_size", &ParallelRanks::pipe_parallel_size)
      .def("data_parallel_size", &ParallelRanks::data_parallel_size)
      .def("slice_parallel_size", &ParallelRanks::slice_parallel_size)
      .def("pipe_groups", &ParallelRanks::pipe_groups)
      .def("data_parallel_groups", &ParallelRanks::data_parallel_groups)
      .def("slice_groups", &ParallelRanks::slice_groups)
      .def("model_parallel_groups", &ParallelRanks::model_parallel_groups)
      .def("p2p_groups", &ParallelRanks::p2p_groups)
      .def("stage_to_global", &ParallelRanks::stage_to_global, "stage_id"_a, "coord"_a);
}

}  // namespace

void bind_pipeline_plans(py::module_& module) {
  bind_topology(module);
  module.def("schedule_steps", &schedule_steps, "name"_a, "micro_batches"_a, "stages"_a, "stage_id"_a);
  module.def(
      "schedule_buffers",
      [](const std::string& name, int micro_batches, int stages, int stage_id) {
        return make_schedule(name, micro_batches, stages, stage_id)->num_pipe_buffers();
      },
      "name"_a, "micro_batches"_a, "stages"_a, "stage_id"_a);
  module.def("partition_uniform", &partition_uniform, "num_items"_a, "num_parts"_a);
  module.def("partition_balanced", &partition_balanced, "weights"_a, "num_parts"_a);
}

}  // namespace deepspeed::python
