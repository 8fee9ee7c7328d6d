// Collects the contents of checkpoint files: the engine's state in the form of checkpoint/content.
//
// The optimizer's masters are stored in fp32 (fp64 for fp64 parameters), with the states. Masters that must
// be computed, and everything on a disk, are produced while the file is written. They never take memory for
// their full size.
#include "deepspeed/engine/saving/checkpoint_content.h"

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/ops/cat.h>

#include "deepspeed/base/message.h"
#include "deepspeed/checkpoint/content/plain_optimizer.h"
#include "deepspeed/engine/model/model_tensors.h"
#include "deepspeed/optim/slices/hyperparameters_json.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/precision/loss_scaler.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/params/set_values.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed {
namespace {

using checkpoint::DeferredTensors;
using checkpoint::PieceSink;

constexpr int64_t kWrittenNumel = int64_t{1} << 22;  // elements per piece: 16 MiB

void pass_on(const at::Tensor& values, const PieceSink& sink) {
  const at::Tensor here = values.cpu().contiguous();
  if (here.numel() > 0) sink(here.const_data_ptr(), here.nbytes());
}

/// Returns masters as the files store them: in fp32, or fp64 if they are fp64.
at::Tensor in_full(const at::Tensor& masters) {
  return masters.scalar_type() == at::kDouble ? masters : masters.to(at::kFloat);
}

/// Converts the interval `part` of a saved tensor to this rank's elements of the group. The saved tensor
/// begins at element `begin` of these.
Interval shifted(const Interval& part, int64_t begin) { return {begin + part.begin, begin + part.end}; }

/// Returns a source that computes fp32 masters from states in memory, piece by piece. `begin`: see shifted().
DeferredTensors::Source made_masters(zero::ZeroOptimizer& optimizer, size_t group, int64_t begin) {
  return [&optimizer, group, begin](const Interval& part, const PieceSink& sink) {
    const Interval wanted = shifted(part, begin);
    for (int64_t first = wanted.begin; first < wanted.end; first += kWrittenNumel) {
      const Interval piece{first, std::min(first + kWrittenNumel, wanted.end)};
      pass_on(in_full(optimizer.state().of(group, piece).master), sink);
    }
  };
}

at::Tensor tensor_of(const zero::StateSlice& slice, const std::string& name) {
  for (const auto& [own, tensor] : slice.state.tensors) {
    if (own == name) return tensor;
  }
  return slice.master;
}

/// Returns a source that reads a state tensor slice by slice. `begin`: see shifted(). An empty name means the
/// masters. Slices on a disk are in memory one at a time.
DeferredTensors::Source read_slices(zero::ZeroOptimizer& optimizer, size_t group, int64_t begin,
                                    std::string name) {
  return [&optimizer, group, begin, name = std::move(name)](const Interval& part, const PieceSink& sink) {
    const Interval wanted = shifted(part, begin);
    optimizer.state().read(group, wanted, [&](const zero::StateSlice& slice) {
      const at::Tensor whole = tensor_of(slice, name);
      const Interval common = intersect(slice.interval, wanted);
      const Interval piece{common.begin - slice.interval.begin, common.end - slice.interval.begin};
      for (int64_t first = piece.begin; first < piece.end; first += kWrittenNumel) {
        const at::Tensor values = whole.narrow(0, first, std::min(kWrittenNumel, piece.end - first));
        pass_on(name.empty() ? in_full(values) : values, sink);
      }
    });
  };
}

/// Returns the optimizer state of the elements `part` in this rank's part of a group. At stage 3 `part` is
/// one sub-group. Throws as ZeroState::of() does.
zero::GroupState saved_state(zero::ZeroOptimizer& optimizer, size_t group, const Interval& part,
                             DeferredTensors& deferred) {
  if (const auto on_disk = optimizer.state().on_disk(group, part)) {
    zero::GroupState result{deferred.add(part.numel(), optimizer.store().master_dtype(group),
                                         read_slices(optimizer, group, part.begin, "")),
                            {{}, on_disk->step}};
    for (const auto& [name, tensor] : on_disk->tensors) {
      result.state.tensors.emplace_back(name, deferred.add(part.numel(), tensor.scalar_type(),
                                                           read_slices(optimizer, group, part.begin, name)));
    }
    return result;
  }
  if (optimizer.state().makes_fp32_masters()) {
    zero::GroupState result = optimizer.state().beside_masters(group, part);
    // Weights on a disk are read in whole slices.
    const bool reads_weights = optimizer.store().home() == zero::ParamHome::kDisk;
    result.master = deferred.add(part.numel(), at::kFloat,
                                 reads_weights ? read_slices(optimizer, group, part.begin, "")
                                               : made_masters(optimizer, group, part.begin));
    return result;
  }
  zero::GroupState result = optimizer.state().of(group, part);
  result.master = in_full(result.master);
  return result;
}

/// Returns this rank's shard of a partitioned parameter, on the CPU. A shard on a disk becomes a deferred
/// tensor. Undefined for a tensor that is not partitioned.
at::Tensor saved_shard(const at::Tensor& param, DeferredTensors& deferred) {
  const int64_t on_disk = zero::disk_bytes(param);
  if (on_disk == 0) {
    const at::Tensor shard = zero::shard_of(param);
    return shard.defined() ? shard.cpu() : shard;
  }
  return deferred.add(on_disk / param.element_size(), param.scalar_type(),
                      [param](const Interval& part, const PieceSink& sink) {
                        pass_on(zero::shard_of(param).narrow(0, part.begin, part.numel()), sink);
                      });
}

bool uses_zero(const TrainingState& state) { return state.parts.config.zero_optimization.stage > 0; }

// Returns whether DeepSpeed's optimizer of 16-bit weights keeps the group's masters and states as one tensor.
bool is_flat_in_deepspeed(const zero::ZeroOptimizer& optimizer) {
  return optimizer.state().has_master_weights() && optimizer.base_optimizer().name() == "FusedAdam";
}

// Returns a flat state with its parameters in the order in which they were given, without padding.
at::Tensor in_given_order(const at::Tensor& flat, const zero::StoredGroup& group) {
  std::vector<at::Tensor> parts;
  int64_t end = 0;
  bool in_order = true;
  for (size_t param = 0; param < group.params.size(); ++param) {
    const Interval place = group.layout.place(param);
    parts.push_back(flat.narrow(0, place.begin, place.numel()));
    in_order = in_order && place.begin == end;
    end = place.end;
  }
  return in_order ? flat.narrow(0, 0, end) : at::cat(parts);
}

/// Returns the shared parameters as (alias, stored name). In a pipeline names in the model are also aliases
/// of the stored names, "<layer>.<name in the layer's file>".
std::vector<std::pair<std::string, std::string>> shared_params(const EngineModel& model) {
  auto shared = model.shared_parameters;
  for (const StoredLayer& layer : model.stored_layers) {
    for (const auto& [name, in_model] : layer.names) {
      const std::string stored = message(layer.index, ".", name);
      if (stored != in_model && layer.is_written) shared.emplace_back(in_model, stored);
    }
  }
  return shared;
}

checkpoint::LossScalerStates scaler_states(const TrainingState& state) {
  checkpoint::LossScalerStates result;
  result.cur_scale = state.parts.optimizer->loss_scale();
  const auto* dynamic =
      dynamic_cast<const precision::DynamicLossScaler*>(&state.parts.optimizer->loss_scaler());
  if (dynamic == nullptr) return result;
  result.dynamic = true;
  result.cur_iter = dynamic->state().cur_iter;
  result.last_overflow_iter = dynamic->state().last_overflow_iter;
  result.cur_hysteresis = dynamic->state().cur_hysteresis;
  result.scale_window = dynamic->options().scale_window;
  result.min_scale = dynamic->options().min_scale;
  result.delayed_shift = dynamic->options().hysteresis;
  result.consecutive_hysteresis = dynamic->options().consecutive_hysteresis;
  result.raise_error_at_min_scale = dynamic->options().raise_error_at_min_scale;
  return result;
}

void add_sub_groups(const TrainingState& state, size_t group, checkpoint::DeferredTensors& deferred,
                    std::vector<checkpoint::PartitionStates>& groups) {
  const zero::ZeroOptimizer& optimizer = *state.parts.optimizer;
  for (const zero::SubGroup& sub_group : optimizer.store().shards(group)->sub_groups()) {
    const zero::GroupState own = saved_state(*state.parts.optimizer, group, sub_group.in_flat, deferred);
    checkpoint::PartitionStates& states = groups.emplace_back();
    states.param_group = group;
    states.partition_count = state.parts.groups.zero.shard.size();
    states.fp32 = own.master;
    states.tensors = own.state.tensors;
    if (own.state.step > 0) states.step = own.state.step;
    states.options = to_json(optimizer.base_optimizer().param_groups()[group].options);
  }
}

checkpoint::PlainOptimizerStates plain_states(const TrainingState& state) {
  const zero::ZeroOptimizer& optimizer = *state.parts.optimizer;
  const bool is_flat = is_flat_in_deepspeed(optimizer);
  checkpoint::PlainOptimizerStates result;
  result.has_masters = optimizer.state().has_master_weights();
  // DeepSpeed's flat form has no loss scaler in bf16 either.
  if (result.has_masters ? !is_flat || state.parts.config.fp16.enabled
                         : state.parts.optimizer->loss_scaler().is_dynamic())
    result.loss_scaler = scaler_states(state);
  result.clip_grad = state.parts.config.gradient_clipping;
  for (size_t index = 0; index < optimizer.store().groups().size(); ++index) {
    const zero::StoredGroup& group = optimizer.store().groups()[index];
    checkpoint::PlainGroupStates& states = result.groups.emplace_back();
    const auto [master, slice] = optimizer.state().of(index);
    if (is_flat) {
      states.params.push_back({{}, slice.step});
      for (const auto& [name, flat] : slice.tensors)
        states.params[0].tensors.emplace_back(name, in_given_order(flat, group));
      states.fp32_flat = in_given_order(master, group);
    }
    for (size_t param = 0; param < group.params.size(); ++param) {
      states.names.push_back(group.params[param].name);
      if (is_flat) continue;
      checkpoint::ParamOptimizerState& of_param = states.params.emplace_back();
      of_param.step = slice.step;
      for (const auto& [name, flat] : slice.tensors)
        of_param.tensors.emplace_back(name, group.part_of(flat, param));
      for (const auto& [name, numbers] : slice.numbers)
        of_param.numbers.emplace_back(name, numbers.at(param));
      if (result.has_masters) states.fp32.push_back(group.part_of(master, param));
    }
    states.options = to_json(optimizer.base_optimizer().param_groups()[index].options);
  }
  return result;
}

}  // namespace

checkpoint::ModelStates model_states(const TrainingState& state, const SaveOptions& options,
                                     checkpoint::DeferredTensors& deferred) {
  const EngineModel& model = state.parts.model;
  checkpoint::ModelStates result;
  result.states.has_module = model.stored_layers.empty();
  if (result.states.has_module)
    result.states.module = module_tensors(state.parts.model, options.exclude_frozen_parameters);
  for (const NamedTensor& buffer : model.buffers) result.states.buffer_names.push_back(buffer.name);
  result.states.shared_params = shared_params(model);
  // At stage 0 the module has the shapes, but a pipeline keeps its module in other files.
  if (state.parts.optimizer && (uses_zero(state) || !result.states.has_module)) {
    auto& shapes = result.states.param_shapes.emplace();
    for (const zero::StoredGroup& group : state.parts.optimizer->store().groups()) {
      auto& of_group = shapes.emplace_back();
      for (const zero::PlacedParam& placed : group.layout.params()) {
        const NamedTensor& param = group.params[placed.index];
        of_group.emplace_back(param.name, param.tensor.sizes().vec());
      }
    }
    if (uses_zero(state) && !options.exclude_frozen_parameters) {
      auto& frozen_shapes = result.states.frozen_param_shapes.emplace();
      auto& fragments = result.states.frozen_param_fragments.emplace();
      for (const NamedTensor& param : model.parameters) {
        if (param.tensor.requires_grad()) continue;
        const at::Tensor shard = saved_shard(param.tensor, deferred);
        if (state.parts.pool && !shard.defined()) continue;  // stored whole in the module
        frozen_shapes.emplace_back(param.name, param.tensor.sizes().vec());
        fragments.emplace_back(param.name, shard.defined() ? shard : param.tensor.detach().cpu());
      }
    }
  }
  if (state.parts.optimizer && !uses_zero(state)) {
    result.optimizer = checkpoint::build_plain_optimizer(plain_states(state));
  }
  if (state.parts.lr_scheduler) result.lr_scheduler = state.parts.lr_scheduler->state_dict();
  result.sparse_names = state.sparse_names;
  result.skipped_steps = state.counters.skipped_steps;
  result.global_steps = state.counters.global_steps;
  result.global_samples = state.counters.global_samples;
  result.dp_world_size = state.parts.data_group().size();
  result.mp_world_size = state.parts.groups.model_size();
  result.pp_degree = state.parts.groups.num_stages;
  result.ds_config = state.parts.config.raw;
  result.client_state = options.client_state;
  return result;
}

checkpoint::ZeroOptimizerStates zero_states(const TrainingState& state,
                                            checkpoint::DeferredTensors& deferred) {
  const zero::ZeroOptimizer& optimizer = *state.parts.optimizer;
  checkpoint::ZeroOptimizerStates result;
  result.zero_stage = optimizer.stage();
  result.loss_scaler = scaler_states(state);
  result.overflow = !state.counters.step_applied && state.counters.global_steps > 0;
  result.clip_grad = state.parts.config.gradient_clipping;
  result.ds_config = state.parts.config.raw;
  if (optimizer.stage() == 3) {
    for (size_t index = 0; index < optimizer.store().groups().size(); ++index)
      add_sub_groups(state, index, deferred, result.groups);
    return result;
  }
  for (size_t index = 0; index < optimizer.store().groups().size(); ++index) {
    const zero::StoredGroup& group = optimizer.store().groups()[index];
    checkpoint::PartitionStates& states = result.groups.emplace_back();
    states.padding = group.layout.padding(state.parts.groups.zero.shard.rank());
    states.partition_count = state.parts.groups.zero.shard.size();
    const zero::GroupState own =
        saved_state(*state.parts.optimizer, index, {0, optimizer.state().owned(index).numel()}, deferred);
    states.fp32 = own.master.narrow(0, 0, own.master.numel() - states.padding);
    for (const zero::ParamPiece& piece : group.layout.pieces(optimizer.state().owned(index))) {
      states.fragments.emplace_back(
          group.params[piece.index].name,
          checkpoint::FragmentAddress{piece.in_interval.numel(), piece.in_interval.begin});
    }
    states.tensors = own.state.tensors;
    if (own.state.step > 0) states.step = own.state.step;
    for (const auto& [name, numbers] : own.state.numbers) {
      for (size_t param = 0; param < group.params.size(); ++param)
        states.numbers[name][group.params[param].name] = numbers.at(param);
    }
    states.options = to_json(optimizer.base_optimizer().param_groups()[index].options);
  }
  return result;
}

}  // namespace deepspeed
