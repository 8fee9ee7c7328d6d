#include "deepspeed/engine/memory_estimate.h"

#include <iomanip>
#include <unordered_set>
#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/equal_shards.h"
#include "deepspeed/base/error.h"
#include "deepspeed/engine/base_optimizer.h"
#include "deepspeed/engine/param_groups.h"
#include "deepspeed/engine/zero_options.h"
#include "deepspeed/zero/shard_layout.h"
#include "deepspeed/zero/step_cut.h"

namespace deepspeed::zero {
namespace {

using NamedTensors = std::vector<NamedTensor>;

int64_t bytes_of(at::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); }

std::vector<int64_t> numels_of_group(const NamedTensors& params) {
  std::vector<int64_t> numels;
  for (const NamedTensor& param : params) numels.push_back(param.tensor.numel());
  return numels;
}

/// The state that the optimizer adds with the first step of one square matrix.
int64_t bytes_of_state(optim::Optimizer& optimizer, size_t group, size_t id, int64_t side) {
  const int64_t numel = side * side;
  const std::vector<optim::Segment> segments = {{0, {0, numel}, 0, {side, side}}};
  optim::FlatSlice slice;
  slice.id = id;
  slice.group = group;
  slice.master = at::zeros({numel}, at::kFloat);
  slice.gradient = at::zeros({numel}, at::kFloat);
  slice.segments = &segments;
  const int64_t before = optimizer.state_bytes();
  optimizer.step(slice, 1.0);
  return optimizer.state_bytes() - before;
}

/// Of an element, asked of the optimizer itself; what does not grow with the parameters is left out.
int64_t state_bytes_per_element(optim::Optimizer& optimizer, size_t group) {
  constexpr int64_t kSmall = 8, kLarge = 16;
  const c10::NoGradGuard no_grad;
  const int64_t small = bytes_of_state(optimizer, group, 2 * group, kSmall);
  const int64_t large = bytes_of_state(optimizer, group, 2 * group + 1, kLarge);
  return (large - small) / (kLarge * kLarge - kSmall * kSmall);
}

/// Elements of a group's flat space on one rank, padding included.
struct GroupElements {
  int64_t held = 0;     // of its parameters
  int64_t owned = 0;    // that it updates
  int64_t on_disk = 0;  // of these, elements whose masters and states are there
};

int64_t on_disk_of(const ShardLayout& shards, const config::OffloadOptimizerConfig& offload) {
  if (offload.device != "nvme") return 0;
  std::vector<Interval> cuts;
  for (const SubGroup& sub_group : shards.sub_groups()) cuts.push_back(sub_group.in_flat);
  const size_t count = count_within(cuts, offload.ratio);
  return count == 0 ? 0 : cuts[count - 1].end;
}

GroupElements elements_of(const NamedTensors& params, const config::ZeroConfig& zero, int world_size) {
  const std::vector<int64_t> numels = numels_of_group(params);
  if (zero.stage == 3) {
    const ShardLayout shards(numels, world_size, zero.sub_group_size);
    return {shards.flat_numel(), shards.flat_numel(), on_disk_of(shards, zero.offload_optimizer)};
  }
  const FlatLayout layout(numels, world_size, zero.round_robin_gradients);
  const int64_t owned = zero.stage == 0 ? layout.padded_numel() : layout.partition_numel();
  return {layout.padded_numel(), owned, zero.offload_optimizer.device == "nvme" ? owned : 0};
}

void add_group(MemoryBytes& sum, const GroupElements& elements, const ZeroOptions& options,
               at::ScalarType dtype, int64_t state_bytes) {
  sum.parameters += elements.held * bytes_of(dtype);
  sum.gradients += (options.stage >= 2 ? elements.owned : elements.held) *
                   bytes_of(options.accumulation_dtype.value_or(dtype));
  const bool has_masters = dtype != at::kFloat && !options.sixteen_bit_masters;
  const int64_t master_bytes = !has_masters ? 0 : bytes_of(options.split_masters ? at::kShort : at::kFloat);
  const int64_t in_memory = elements.owned - elements.on_disk;
  sum.master_weights += in_memory * master_bytes;
  sum.optimizer_states += in_memory * state_bytes;
  sum.on_disk += elements.on_disk * (master_bytes + state_bytes);
}

/// Of the parameters that stand in no group: whole, or at stage 3 their shards.
int64_t bytes_of_frozen(const EngineModel& model, const std::vector<NamedTensors>& groups, int64_t stage,
                        at::ScalarType dtype, int world_size) {
  std::unordered_set<const at::TensorImpl*> grouped;
  for (const NamedTensors& group : groups) {
    for (const NamedTensor& param : group) grouped.insert(param.tensor.unsafeGetTensorImpl());
  }
  int64_t bytes = 0;
  for (const NamedTensor& param : model.parameters) {
    if (grouped.contains(param.tensor.unsafeGetTensorImpl())) continue;
    const at::ScalarType own = param.tensor.scalar_type();
    const bool is_cast = dtype != at::kFloat && param.tensor.is_floating_point();
    const bool is_cut = stage == 3 && param.tensor.is_floating_point() && (is_cast || own == dtype);
    const int64_t numel = param.tensor.numel();
    bytes += (is_cut ? shard_numel(numel, world_size) : numel) * bytes_of(is_cast ? dtype : own);
  }
  return bytes;
}

}  // namespace

ModelStatesEstimate estimate_model_states(const EngineModel& model, const config::ConfigSource& source,
                                          int world_size) {
  if (world_size < 1) {
    raise<UsageError>("zero.estimate_model_states", "a world of ", world_size, " ranks, expected 1 or more");
  }
  const config::DeepSpeedConfig config = config::load_config(source, world_size);
  OptimizerGroups groups = make_param_groups(model, config, {}, nullptr);
  const at::ScalarType dtype = model_dtype(config);
  ModelStatesEstimate estimate;
  estimate.frozen_parameters =
      bytes_of_frozen(model, groups.tensors, config.zero_optimization.stage, dtype, world_size);
  if (groups.tensors.empty()) return estimate;
  const auto optimizer = make_base_optimizer(config, nullptr, model, std::move(groups.options));
  const ZeroOptions options = zero_options(config, world_size);
  for (size_t index = 0; index < groups.tensors.size(); ++index) {
    add_group(estimate.states, elements_of(groups.tensors[index], config.zero_optimization, world_size),
              options, dtype, state_bytes_per_element(*optimizer, index));
  }
  return estimate;
}

void estimate_model_states_of_all_stages(const EngineModel& model, const Json& config, int world_size,
                                         std::ostream& out) {
  constexpr double kGigabyte = 1e9;
  constexpr int kWidth = 12;
  const auto row = [&](const auto&... cells) {
    ((out << std::setw(kWidth) << cells), ...);
    out << "\n";
  };
  const auto flags = out.flags();
  const auto precision = out.precision(3);
  out << std::fixed << "GB of a rank, of " << world_size << ":\n";
  row("stage", "parameters", "gradients", "masters", "states", "total");
  for (int stage = 0; stage <= 3; ++stage) {
    Json of_stage = config;
    of_stage["zero_optimization"]["stage"] = stage;
    if (stage == 0) of_stage["zero_optimization"].erase("offload_optimizer");
    const ModelStatesEstimate estimate = estimate_model_states(model, of_stage, world_size);
    const MemoryBytes& states = estimate.states;
    row(stage, static_cast<double>(states.parameters + estimate.frozen_parameters) / kGigabyte,
        static_cast<double>(states.gradients) / kGigabyte,
        static_cast<double>(states.master_weights) / kGigabyte,
        static_cast<double>(states.optimizer_states) / kGigabyte,
        static_cast<double>(estimate.total()) / kGigabyte);
  }
  out.precision(precision);
  out.flags(flags);
}

}  // namespace deepspeed::zero
