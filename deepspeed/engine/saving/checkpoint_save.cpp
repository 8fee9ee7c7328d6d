// How a checkpoint is saved, and what its files hold.
//
// save() waits for the save before, checks on all ranks that nothing would be lost, makes the tag's staging
// folder on rank 0 (begin()), collects what this rank's files will hold (collect()), and runs the job, in the
// background where the config asks for that and there is memory for a copy. This rank's files are the model's
// (rank 0, at stage 3 each rank), the optimizer's partitions at stages 1 to 3 (at stage 0 the model's file
// holds the optimizer), and the random streams. Where several ranks hold each shard, the first of them alone
// writes it. Collected tensors share the engine's memory, or are made
// while the file is written.
#include <filesystem>
#include <utility>

#include <ATen/ops/cat.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/content/run_state.h"
#include "deepspeed/checkpoint/tag/folder_writers.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/save_mark.h"
#include "deepspeed/checkpoint/tag/tag_folder.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/engine/model/model_tensors.h"
#include "deepspeed/engine/saving/background_saver.h"
#include "deepspeed/engine/saving/checkpoint_io.h"
#include "deepspeed/engine/saving/saved_state.h"
#include "deepspeed/optim/slices/hyperparameters_json.h"
#include "deepspeed/optim/slices/optimizer.h"
#include "deepspeed/precision/loss_scaler.h"
#include "deepspeed/random/cuda_rng_tracker.h"
#include "deepspeed/zero/compressed_exchange.h"
#include "deepspeed/zero/params/param_store.h"
#include "deepspeed/zero/zero_optimizer.h"
#include "deepspeed/zero/zero_state.h"

namespace deepspeed {
namespace {

namespace fs = std::filesystem;

// The part of a group's flat state that belongs to one parameter, in its shape.
at::Tensor part_of(const at::Tensor& flat, const zero::StoredGroup& group, size_t param) {
  const Interval place = group.layout.place(param);
  return flat.narrow(0, place.begin, place.numel()).view(group.params[param].tensor.sizes());
}

// Says where DeepSpeed's own optimizer of 16-bit weights keeps masters and states of a group as one tensor.
bool is_flat_in_deepspeed(const zero::ZeroOptimizer& optimizer) {
  return optimizer.state().has_master_weights() && optimizer.base_optimizer().name() == "FusedAdam";
}

// A flat state with its parameters in the order in which they were given, without padding.
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

}  // namespace

void CheckpointIo::save(const std::string& directory, const SaveOptions& options) {
  if (directory.empty()) raise<UsageError>("save_checkpoint() needs a directory");
  if (parts_.pool && !parts_.optimizer) {
    raise<UsageError>(state_.is_destroyed
                          ? "save_checkpoint() at stage 3 after destroy(), which gave back the optimizer"
                          : "save_checkpoint() at stage 3 of an engine without an optimizer",
                      ": the weights would lie in its files; call save_16bit_model()");
  }
  wait_for_save();
  SaveJob job = make_job(directory, options);
  check_tag(job.tag);
  on_all_ranks("saving", [&] { check_save(job, options); });
  const auto& writer = parts_.config.checkpoint.writer;
  if (writer && writer->type == "MOCK") {
    on_all_ranks("saving", [&] { collect(job, options); });
    log::warning("[checkpoint] checkpoint.writer.type is MOCK: ", directory, "/", job.tag, " is not written");
    return;
  }
  begin(job, options);
  run(std::move(job));
}

SaveJob CheckpointIo::make_job(const std::string& directory, const SaveOptions& options) const {
  SaveJob job;
  const std::string default_tag = checkpoint::default_tag(state_.counters.global_steps);
  job.directory = directory;
  job.tag = options.tag.empty() ? default_tag : options.tag;
  job.save_latest = options.save_latest;
  job.in_turn = options.save_latest && job.tag == default_tag;
  job.keep_last = parts_.config.checkpoint.keep_last;
  job.writes_script = parts_.optimizer && uses_zero();
  job.local_rank = parts_.world.local_rank();
  if (const auto& writer = parts_.config.checkpoint.writer) {
    if (writer->type == "PYTHON") job.writer.method = io::WriteMethod::kPlain;
    job.writer.double_buffered = writer->io_buffer_double;
    job.writer.buffer_bytes = size_t(writer->io_buffer_size) * (writer->io_buffer_double ? 2 : 1);
    job.num_writers = writer->io_multiplier;
    job.show_statistics = writer->show_statistics;
  }
  return job;
}

void CheckpointIo::begin(SaveJob& job, const SaveOptions& options) {
  job.save = parts_.groups.all.all_gather_text(rank() == 0 ? checkpoint::new_save() : "").front();
  bool has_begun = false;
  try {
    on_all_ranks("saving", [&] {
      if (rank() == 0) {
        auto& writer = state_.folder_writers[job.directory];
        if (!writer) writer = checkpoint::FolderWriter::enter(job.directory);
        writer->check(job.tag);
        job.lock = checkpoint::begin_tag(job.directory, job.tag);
        writer->note_saved(job.tag);
      }
      has_begun = rank() == 0;
      collect(job, options);
    });
  } catch (...) {
    if (has_begun) job.abandon();
    throw;
  }
}

void CheckpointIo::run(SaveJob job) {
  BackgroundSaver* saver = state_.background_saver.get();
  if (saver != nullptr && saver->has_room_for(job)) return saver->start(std::move(job));
  if (saver != nullptr) {
    log::warning("[checkpoint] there is too little host memory for a copy of what ", job.directory, "/",
                 job.tag, " will hold: it is written before the training goes on");
  }
  job.run(parts_.groups.all);
}

void CheckpointIo::collect(SaveJob& job, const SaveOptions& options) const {
  const int data_rank = parts_.data_group().rank(), mp_rank = parts_.groups.model_rank();
  const bool writes_shards = parts_.groups.zero.is_first_replica();  // their ranks are the first ones
  checkpoint::DeferredTensors deferred;
  const auto add = [&](const fs::path& path, const checkpoint::Value& value) {
    job.file_names.push_back(path.filename().string());
    job.contents.push_back(checkpoint::make_archive_content(value, deferred.stream()));
    job.contents.back().mark = checkpoint::to_text(
        {job.save, job.file_names.back(), state_.counters.global_steps, parts_.groups.all.size()});
  };
  if (parts_.pool && writes_shards) {
    add(checkpoint::sharded_model_states_path(job.directory, job.tag, data_rank, mp_rank),
        checkpoint::build_model_states(model_states(options, deferred)));
  } else if (!parts_.pool && data_rank == 0) {
    add(checkpoint::model_states_path(job.directory, job.tag, mp_rank),
        checkpoint::build_model_states(model_states(options, deferred)));
    for (const auto& [layer, tensors] : layer_tensors(parts_.model, options.exclude_frozen_parameters)) {
      add(checkpoint::layer_states_path(job.directory, job.tag, layer->index, layer->slice),
          checkpoint::build_tensors(tensors));
    }
  }
  if (parts_.optimizer && uses_zero() && writes_shards) {
    add(checkpoint::optim_states_path(job.directory, job.tag, data_rank, mp_rank, parts_.config.bf16.enabled),
        checkpoint::build_optimizer_states(zero_states(deferred)));
  }
  checkpoint::RunState run;
  run.cpu_rng = device::cpu_rng_state();
  if (device::num_cuda_devices() > 0) run.cuda_rng = device::cuda_rng_state();
  run.rng_streams = get_cuda_rng_tracker().get_states();
  if (const auto& position = state_.loader_position) {
    run.loader = checkpoint::LoaderState{position->seed, position->epoch, position->samples_consumed,
                                         position->epoch_ended};
  }
  if (parts_.config.managed_gradient_accumulation && !has_waiting_gradients())
    run.micro_steps = state_.counters.micro_steps % parts_.config.gradient_accumulation_steps;
  if (parts_.optimizer) {
    zero::RankState own = parts_.optimizer->rank_state();
    run.optimizer_tensors = std::move(own.tensors);
    run.optimizer_ranks = own.num_ranks;
  }
  add(checkpoint::rng_states_path(job.directory, job.tag, rank()), checkpoint::build_run_state(run));
}

/// Of a pipeline the files say under which names its layers' files have what stages share.
std::vector<std::pair<std::string, std::string>> CheckpointIo::shared_params() const {
  auto shared = parts_.model.shared_parameters;
  for (const StoredLayer& layer : parts_.model.stored_layers) {
    for (const auto& [name, in_model] : layer.names) {
      const std::string stored = message(layer.index, ".", name);
      if (stored != in_model && layer.is_written) shared.emplace_back(in_model, stored);
    }
  }
  return shared;
}

checkpoint::ModelStates CheckpointIo::model_states(const SaveOptions& options,
                                                   checkpoint::DeferredTensors& deferred) const {
  const EngineModel& model = parts_.model;
  checkpoint::ModelStates result;
  result.states.has_module = model.stored_layers.empty();
  if (result.states.has_module)
    result.states.module = module_tensors(parts_.model, options.exclude_frozen_parameters);
  for (const NamedTensor& buffer : model.buffers) result.states.buffer_names.push_back(buffer.name);
  result.states.shared_params = shared_params();
  // At stage 0 the module has them; that of a pipeline is in other files.
  if (parts_.optimizer && (uses_zero() || !result.states.has_module)) {
    auto& shapes = result.states.param_shapes.emplace();
    for (const zero::StoredGroup& group : parts_.optimizer->store().groups()) {
      auto& of_group = shapes.emplace_back();
      for (const zero::PlacedParam& placed : group.layout.params()) {
        const NamedTensor& param = group.params[placed.index];
        of_group.emplace_back(param.name, param.tensor.sizes().vec());
      }
    }
    if (uses_zero() && !options.exclude_frozen_parameters) {
      auto& frozen_shapes = result.states.frozen_param_shapes.emplace();
      auto& fragments = result.states.frozen_param_fragments.emplace();
      for (const NamedTensor& param : model.parameters) {
        if (param.tensor.requires_grad()) continue;
        const at::Tensor shard = saved_shard(param.tensor, deferred);
        if (parts_.pool && !shard.defined()) continue;  // whole in the module
        frozen_shapes.emplace_back(param.name, param.tensor.sizes().vec());
        fragments.emplace_back(param.name, shard.defined() ? shard : param.tensor.detach().cpu());
      }
    }
  }
  if (parts_.optimizer && !uses_zero()) {
    result.optimizer = checkpoint::build_plain_optimizer(plain_states());
  }
  if (parts_.lr_scheduler) result.lr_scheduler = parts_.lr_scheduler->state_dict();
  result.sparse_names = state_.sparse_names;
  result.skipped_steps = state_.counters.skipped_steps;
  result.global_steps = state_.counters.global_steps;
  result.global_samples = state_.counters.global_samples;
  result.dp_world_size = parts_.data_group().size();
  result.mp_world_size = parts_.groups.model_size();
  result.pp_degree = parts_.groups.num_stages;
  result.ds_config = parts_.config.raw;
  result.client_state = options.client_state;
  return result;
}

checkpoint::LossScalerStates CheckpointIo::scaler_states() const {
  checkpoint::LossScalerStates result;
  result.cur_scale = parts_.optimizer->loss_scale();
  const auto* dynamic = dynamic_cast<const precision::DynamicLossScaler*>(&parts_.optimizer->loss_scaler());
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

checkpoint::ZeroOptimizerStates CheckpointIo::zero_states(checkpoint::DeferredTensors& deferred) const {
  const zero::ZeroOptimizer& optimizer = *parts_.optimizer;
  checkpoint::ZeroOptimizerStates result;
  result.zero_stage = optimizer.stage();
  result.loss_scaler = scaler_states();
  result.overflow = !state_.counters.step_applied && state_.counters.global_steps > 0;
  result.clip_grad = parts_.config.gradient_clipping;
  result.ds_config = parts_.config.raw;
  if (optimizer.stage() == 3) {
    for (size_t index = 0; index < optimizer.store().groups().size(); ++index)
      add_sub_groups(index, deferred, result.groups);
    return result;
  }
  for (size_t index = 0; index < optimizer.store().groups().size(); ++index) {
    const zero::StoredGroup& group = optimizer.store().groups()[index];
    checkpoint::PartitionStates& states = result.groups.emplace_back();
    states.padding = group.layout.padding(parts_.groups.zero.shard.rank());
    states.partition_count = parts_.groups.zero.shard.size();
    const zero::GroupState own =
        saved_state(*parts_.optimizer, index, {0, optimizer.state().owned(index).numel()}, deferred);
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

void CheckpointIo::add_sub_groups(size_t group, checkpoint::DeferredTensors& deferred,
                                  std::vector<checkpoint::PartitionStates>& groups) const {
  const zero::ZeroOptimizer& optimizer = *parts_.optimizer;
  for (const zero::SubGroup& sub_group : optimizer.store().shards(group)->sub_groups()) {
    const zero::GroupState own = saved_state(*parts_.optimizer, group, sub_group.in_flat, deferred);
    checkpoint::PartitionStates& states = groups.emplace_back();
    states.param_group = group;
    states.partition_count = parts_.groups.zero.shard.size();
    states.fp32 = own.master;
    states.tensors = own.state.tensors;
    if (own.state.step > 0) states.step = own.state.step;
    states.options = to_json(optimizer.base_optimizer().param_groups()[group].options);
  }
}

checkpoint::PlainOptimizerStates CheckpointIo::plain_states() const {
  const zero::ZeroOptimizer& optimizer = *parts_.optimizer;
  const bool is_flat = is_flat_in_deepspeed(optimizer);
  checkpoint::PlainOptimizerStates result;
  result.has_masters = optimizer.state().has_master_weights();
  // DeepSpeed's flat form has none in bf16 either.
  if (result.has_masters ? !is_flat || parts_.config.fp16.enabled
                         : parts_.optimizer->loss_scaler().is_dynamic())
    result.loss_scaler = scaler_states();
  result.clip_grad = parts_.config.gradient_clipping;
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
      checkpoint::ParamOptimizerState& state = states.params.emplace_back();
      state.step = slice.step;
      for (const auto& [name, flat] : slice.tensors)
        state.tensors.emplace_back(name, part_of(flat, group, param));
      for (const auto& [name, numbers] : slice.numbers) state.numbers.emplace_back(name, numbers.at(param));
      if (result.has_masters) states.fp32.push_back(part_of(master, group, param));
    }
    states.options = to_json(optimizer.base_optimizer().param_groups()[index].options);
  }
  return result;
}

}  // namespace deepspeed
