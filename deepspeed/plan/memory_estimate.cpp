// Estimates the memory of a rank.
//
// estimate_model_states() loads the config, groups the parameters as initialize() would, and makes the
// config's optimizer. The optimizer steps two small matrices of each group to show how many bytes of state an
// element needs. Then each group is laid out as ZeRO does at the stage. EstimatedRank sums its parameters,
// gradients, masters and states by kind and place; frozen parameters follow.
#include "deepspeed/plan/memory_estimate.h"

#include <iomanip>
#include <unordered_set>
#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/engine/assembly/base_optimizer.h"
#include "deepspeed/engine/assembly/offload_choices.h"
#include "deepspeed/engine/assembly/param_groups.h"
#include "deepspeed/engine/assembly/zero_choices.h"
#include "deepspeed/engine/model/autocast_marks.h"
#include "deepspeed/zero/layout/shard_layout.h"
#include "deepspeed/zero/params/trained_dtype.h"
#include "deepspeed/zero/shards/disk_choice.h"
#include "deepspeed/zero/shards/shard_home_options.h"
#include "deepspeed/zero/update/slice_plan.h"
#include "deepspeed/zero/update/step_cut.h"

namespace deepspeed::zero {
namespace {

int64_t bytes_of(at::ScalarType dtype) { return static_cast<int64_t>(c10::elementSize(dtype)); }

/// Returns the bytes of state that the optimizer adds in its first step. It steps a (side, side) matrix with
/// masters of this dtype.
int64_t bytes_of_state(optim::Optimizer& optimizer, size_t group, size_t id, int64_t side,
                       at::ScalarType masters) {
  const int64_t numel = side * side;
  const std::vector<optim::Segment> segments = {{0, {0, numel}, 0, {side, side}}};
  optim::FlatSlice slice;
  slice.id = id;
  slice.group = group;
  slice.master = at::zeros({numel}, masters);
  slice.gradient = at::zeros({numel}, masters);
  slice.segments = &segments;
  const int64_t before = optimizer.state_bytes();
  optimizer.step(slice, 1.0);
  return optimizer.state_bytes() - before;
}

/// Returns the bytes of state per element, from steps of two small matrices. State that does not grow with
/// the parameters is left out.
int64_t state_bytes_per_element(optim::Optimizer& optimizer, size_t group, at::ScalarType masters) {
  constexpr int64_t kSmall = 8, kLarge = 16;
  const c10::NoGradGuard no_grad;
  const int64_t small = bytes_of_state(optimizer, group, 2 * group, kSmall, masters);
  const int64_t large = bytes_of_state(optimizer, group, 2 * group + 1, kLarge, masters);
  return (large - small) / (kLarge * kLarge - kSmall * kSmall);
}

/// Returns how many elements of a rank's part of a group are offloaded. These are whole sub-groups, about
/// `ratio` of that part.
int64_t offloaded_of(const ShardLayout& shards, double ratio) {
  std::vector<Interval> cuts;
  for (const SubGroup& sub_group : shards.sub_groups()) cuts.push_back(sub_group.in_flat);
  const size_t count = count_within(cuts, ratio);
  return count == 0 ? 0 : cuts[count - 1].end;
}

/// Sums what a rank holds, by kind and place.
class EstimatedRank {
 public:
  EstimatedRank(const config::DeepSpeedConfig& config, int world_size, bool on_cpu)
      : zero_(config.zero_optimization),
        options_(options_of(config, world_size, on_cpu)),
        dtype_(model_dtype(config)),
        num_shards_(zero_.num_shards(world_size)),
        on_cpu_(on_cpu),
        home_(shard_home_options(config, dtype_, /*rank=*/0, !on_cpu)),
        disk_(home_.max_in_host_numel, home_.min_file_bytes) {}

  /// Adds the next parameter group. Frozen parameters come after all groups. state_bytes: per element.
  void add_group(const NamedTensors& params, int64_t state_bytes, const optim::Optimizer& optimizer) {
    const std::vector<int64_t> numels = numels_of(params);
    const at::ScalarType dtype = trained_dtype(params.front().tensor, dtype_);
    const bool is_offloaded = zero_.offload_optimizer.device != "none";
    int64_t owned = 0, offloaded = 0;
    if (zero_.stage == 3) {
      const ShardLayout shards(numels, num_shards_, zero_.sub_group_size);
      for (size_t index = 0; index < numels.size(); ++index)
        add_shard(shards.shard_numel(index), dtype, &MemoryBytes::parameters);
      owned = shards.flat_numel();
      if (is_offloaded) offloaded = offloaded_of(shards, zero_.offload_optimizer.ratio);
      add_gradients(owned, dtype);
    } else {
      const FlatLayout layout(numels, num_shards_, zero_.round_robin_gradients);
      owned = zero_.stage == 0 ? layout.padded_numel() : layout.partition_numel();
      if (is_offloaded) offloaded = owned;
      add(ParamHome::kDevice, layout.padded_numel() * bytes_of(dtype), &MemoryBytes::parameters);
      add_gradients(keeps_own_gradients(optimizer) ? owned : layout.padded_numel(), dtype);
    }
    add_stepped(owned - offloaded, dtype, plan_of(dtype, /*is_offloaded=*/false), state_bytes);
    add_stepped(offloaded, dtype, plan_of(dtype, /*is_offloaded=*/true), state_bytes);
  }

  /// Adds a parameter that is in no group: whole, or at stage 3 its shard.
  void add_frozen(const at::Tensor& param) {
    const at::ScalarType own = param.scalar_type();
    const bool is_cast = dtype_ != at::kFloat && param.is_floating_point();
    const bool is_cut = zero_.stage == 3 && param.is_floating_point() && (is_cast || own == dtype_);
    if (is_cut) return add_shard(shard_numel(param.numel(), num_shards_), dtype_, nullptr);
    add(ParamHome::kDevice, param.numel() * bytes_of(is_cast ? dtype_ : own), nullptr);
  }

  const ModelStatesEstimate& sum() const { return sum_; }

 private:
  static ZeroOptions options_of(const config::DeepSpeedConfig& config, int world_size, bool on_cpu) {
    ZeroOptions options = zero_options(config, world_size);
    const at::DeviceType device = on_cpu ? at::kCPU : at::kCUDA;
    options.update.offload =
        optimizer_offload(config, /*rank=*/0, autocast_dtype(config.torch_autocast, device));
    return options;
  }

  /// Adds bytes in the memory `place`. kind: the member of states that they count in; null for frozen
  /// parameters.
  void add(ParamHome place, int64_t bytes, int64_t MemoryBytes::*kind) {
    if (place == ParamHome::kDisk) {
      sum_.states.on_disk += bytes;
      sum_.placed.on_disk += bytes;
      return;
    }
    (kind == nullptr ? sum_.frozen_parameters : sum_.states.*kind) += bytes;
    (place == ParamHome::kDevice && !on_cpu_ ? sum_.placed.on_device : sum_.placed.in_host) += bytes;
  }

  void add_shard(int64_t numel, at::ScalarType dtype, int64_t MemoryBytes::*kind) {
    const int64_t bytes = numel * bytes_of(dtype);
    const bool stays = home_.place == ParamHome::kDisk && !disk_.takes(numel, bytes);
    add(stays ? ParamHome::kHost : home_.place, bytes, kind);
  }

  /// Returns whether a rank keeps gradients only for what it updates. At stage 1 other gradients stay too if
  /// several backwards precede a step, or if the optimizer needs the rank's own gradients.
  bool keeps_own_gradients(const optim::Optimizer& optimizer) const {
    if (zero_.stage != 1) return zero_.stage >= 2;
    return !options_.gradients.expects_accumulation && !optimizer.compresses_exchange();
  }

  void add_gradients(int64_t numel, at::ScalarType dtype) {
    const at::ScalarType kept =
        dtype == at::kDouble ? dtype : options_.gradients.accumulation_dtype.value_or(dtype);
    const bool in_host = options_.update.offload.keeps_gradients(/*are_partitioned=*/zero_.stage >= 2);
    add(in_host ? ParamHome::kHost : ParamHome::kDevice, numel * bytes_of(kept), &MemoryBytes::gradients);
  }

  /// Adds masters and states of elements that are stepped together, with weights in `dtype`. state_bytes: per
  /// element.
  void add_stepped(int64_t numel, at::ScalarType dtype, const SlicePlan& plan, int64_t state_bytes) {
    add(plan.home, numel * plan.kept_bytes(), &MemoryBytes::master_weights);
    add(plan.home, numel * state_bytes, &MemoryBytes::optimizer_states);
    if (plan.has_waiting_memory) add(ParamHome::kHost, numel * bytes_of(dtype), &MemoryBytes::swap_buffers);
  }

  SlicePlan plan_of(at::ScalarType dtype, bool is_offloaded) const {
    return plan_slice({.dtype = dtype,
                       .home = home_.place,
                       .model_on_cpu = on_cpu_,
                       .is_offloaded = is_offloaded,
                       .partitions_gradients = zero_.stage >= 2,
                       .accumulation_dtype = options_.gradients.accumulation_dtype},
                      options_.update);
  }

  const config::ZeroConfig& zero_;
  const ZeroOptions options_;
  const at::ScalarType dtype_;
  const int num_shards_;
  const bool on_cpu_;
  const ShardHomeOptions home_;
  DiskChoice disk_;
  ModelStatesEstimate sum_;
};

std::vector<at::Tensor> frozen_of(const EngineModel& model, const std::vector<NamedTensors>& groups) {
  std::unordered_set<const at::TensorImpl*> grouped;
  for (const NamedTensors& group : groups) {
    for (const NamedTensor& param : group) grouped.insert(param.tensor.unsafeGetTensorImpl());
  }
  std::vector<at::Tensor> frozen;
  for (const NamedTensor& param : model.parameters) {
    if (!grouped.contains(param.tensor.unsafeGetTensorImpl())) frozen.push_back(param.tensor);
  }
  return frozen;
}

}  // namespace

ModelStatesEstimate estimate_model_states(const EngineModel& model, const config::ConfigSource& source,
                                          int world_size, std::optional<at::DeviceType> device) {
  if (world_size < 1) {
    raise<UsageError>("a world of ", world_size, " ranks, expected 1 or more");
  }
  const config::DeepSpeedConfig config = config::load_config(source, world_size);
  OptimizerGroups groups = make_param_groups(model, config, {}, nullptr);
  const at::DeviceType built = model.device().is_meta() ? at::kCPU : model.device().type();
  EstimatedRank rank(config, world_size, device.value_or(built) == at::kCPU);
  if (!groups.tensors.empty()) {
    const auto optimizer = make_base_optimizer(config, ClientOptimizer(), model, std::move(groups.options));
    for (size_t index = 0; index < groups.tensors.size(); ++index) {
      const at::ScalarType dtype = trained_dtype(groups.tensors[index].front().tensor, model_dtype(config));
      const at::ScalarType masters = dtype == at::kDouble ? at::kDouble : at::kFloat;
      rank.add_group(groups.tensors[index], state_bytes_per_element(*optimizer, index, masters), *optimizer);
    }
  }
  for (const at::Tensor& param : frozen_of(model, groups.tensors)) rank.add_frozen(param);
  return rank.sum();
}

void estimate_model_states_of_all_stages(const EngineModel& model, const Json& config, int world_size,
                                         std::ostream& out, std::optional<at::DeviceType> device) {
  constexpr double kGigabyte = 1e9;
  constexpr int kWidth = 12;
  const auto row = [&](const auto&... cells) {
    ((out << std::setw(kWidth) << cells), ...);
    out << "\n";
  };
  const auto row_of_bytes = [&](int stage, const auto&... bytes) {
    row(stage, static_cast<double>(bytes) / kGigabyte...);
  };
  const auto flags = out.flags();
  const auto precision = out.precision(3);
  out << std::fixed << "GB of a rank, of " << world_size << ":\n";
  row("stage", "parameters", "gradients", "masters", "states", "on device", "in host", "on disk");
  for (int stage = 0; stage <= 3; ++stage) {
    Json of_stage = config;
    Json& zero = of_stage["zero_optimization"];
    zero["stage"] = stage;
    if (stage == 0) zero.erase("offload_optimizer");
    if (stage < 2 && zero.contains("offload_optimizer") && zero["offload_optimizer"].is_object())
      zero["offload_optimizer"].erase("super_offload");
    if (stage < 3) {
      zero.erase("offload_param");
      zero.erase("mics_shard_size");
      if (zero.contains("offload_optimizer") && zero["offload_optimizer"].is_object())
        zero["offload_optimizer"].erase("ratio");
    }
    const ModelStatesEstimate estimate = estimate_model_states(model, of_stage, world_size, device);
    const MemoryBytes& states = estimate.states;
    const PlacedBytes& placed = estimate.placed;
    row_of_bytes(stage, states.parameters + estimate.frozen_parameters, states.gradients,
                 states.master_weights, states.optimizer_states, placed.on_device, placed.in_host,
                 placed.on_disk);
  }
  out.precision(precision);
  out.flags(flags);
}

}  // namespace deepspeed::zero
