// Shows what this rank's optimizer owns, as flat tensors. The optimizers of deepspeed.runtime give them the
// names that DeepSpeed uses.
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/engine/training_engine.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/layout/shard_layout.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/hold.h"
#include "python/core/zero/optimizer_of.h"

namespace deepspeed::python {
namespace {

// A parameter's name, and the interval of its elements within a part.
using Piece = std::tuple<std::string, int64_t, int64_t>;

/// Describes consecutive elements that DeepSpeed keeps as one tensor. At stage 3 this is a sub-group,
/// otherwise all that this rank owns of a group.
struct Part {
  size_t group = 0;
  Interval interval;               // within this rank's elements of the group
  std::vector<std::string> names;  // of the parameters that any rank has in it, in flat order
};

zero::ZeroOptimizer& read_from(const TrainingEngine& engine) {
  return optimizer_with_states(engine, "reading the optimizer's state");
}

std::vector<std::string> names_of(const zero::StoredGroup& group) {
  std::vector<std::string> names;
  for (const zero::PlacedParam& placed : group.layout.params())
    names.push_back(group.params[placed.index].name);
  return names;
}

std::vector<Part> parts_of(const zero::ZeroOptimizer& optimizer) {
  std::vector<Part> parts;
  const auto& groups = optimizer.store().groups();
  for (size_t group = 0; group < groups.size(); ++group) {
    const zero::ShardLayout* shards = optimizer.store().shards(group);
    if (shards == nullptr) {
      parts.push_back({group, {0, optimizer.state().owned(group).numel()}, names_of(groups[group])});
      continue;
    }
    for (const zero::SubGroup& sub_group : shards->sub_groups()) {
      Part& part = parts.emplace_back(Part{group, sub_group.in_flat, {}});
      for (size_t index = 0; index < sub_group.num_params; ++index)
        part.names.push_back(groups[group].params[sub_group.first_param + index].name);
    }
  }
  return parts;
}

std::vector<Piece> pieces_of(const zero::ZeroOptimizer& optimizer, size_t group, const Interval& part) {
  std::vector<Piece> pieces;
  for (const zero::ParamPiece& piece : optimizer.state().pieces(group, part)) {
    const std::string& name = optimizer.store().groups()[group].params[piece.index].name;
    pieces.emplace_back(name, piece.in_interval.begin, piece.in_interval.end);
  }
  return pieces;
}

py::list owned_parts(const TrainingEngine& engine) {
  const zero::ZeroOptimizer& optimizer = read_from(engine);
  py::list parts;
  for (const Part& part : parts_of(optimizer)) {
    parts.append(py::make_tuple(part.group, part.interval.begin, part.interval.end, part.names,
                                pieces_of(optimizer, part.group, part.interval)));
  }
  return parts;
}

using NamedStates = std::vector<std::pair<std::string, at::Tensor>>;

std::tuple<at::Tensor, NamedStates, int64_t> owned_part(const TrainingEngine& engine, size_t group,
                                                        int64_t begin, int64_t end) {
  const c10::NoGradGuard no_grad;
  const zero::GroupState state = read_from(engine).state().of(group, {begin, end});
  return {state.master, state.state.tensors, state.state.step};
}

std::optional<at::Tensor> flat_weights(const TrainingEngine& engine, size_t group) {
  const at::Tensor& flat = read_from(engine).store().groups().at(group).flat;
  if (!flat.defined()) return std::nullopt;
  return flat.detach();
}

/// Returns this rank's part of a group's reduced gradients. Returns None until a step's gradients are
/// complete.
std::optional<at::Tensor> owned_gradient(const TrainingEngine& engine, size_t group) {
  const zero::ZeroOptimizer& optimizer = read_from(engine);
  if (!optimizer.gradients().has_result()) return std::nullopt;
  return optimizer.gradient(group);
}

/// Returns this rank's part of a group's gradients, summed since the last step. Returns None before the
/// group's first gradient.
std::optional<at::Tensor> owned_sums(const TrainingEngine& engine, size_t group) {
  const at::Tensor sums = read_from(engine).gradients().sums(group);
  if (!sums.defined()) return std::nullopt;
  return sums;
}

}  // namespace

void bind_owned_state(py::module_& module) {
  // Returns for each part: group, begin and end within this rank's elements, names of the parameters, and
  // their pieces.
  module.def("owned_parts", &owned_parts, "engine"_a);
  // Returns master, states and step count of a part. A tensor is shared with the optimizer if it is a single
  // tensor in memory.
  module.def("owned_part", &owned_part, NoGil(), "engine"_a, "group"_a, "begin"_a, "end"_a);
  module.def("owned_gradient", &owned_gradient, NoGil(), "engine"_a, "group"_a);
  module.def("owned_sums", &owned_sums, NoGil(), "engine"_a, "group"_a);
  // Returns all weights of a group, or at stage 3 this rank's shards. Returns None if they are on a disk.
  module.def("flat_weights", &flat_weights, NoGil(), "engine"_a, "group"_a);
}

}  // namespace deepspeed::python
