// Saves a checkpoint.
//
// save() waits for the previous save and checks on all ranks that nothing would be lost. begin() makes the
// tag's staging folder on rank 0, and collect() collects the contents of this rank's files. The job then
// writes them, in the background if the config asks for it and memory allows a copy. A rank writes the
// model's file (rank 0, at stage 3 every rank), the optimizer's partitions at stages 1 to 3, and the random
// streams. At stage 0 the model's file holds the optimizer. If several ranks hold each shard, only the first
// writes it. Collected tensors share the engine's memory or are made while the file is written.
#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/content/run_state.h"
#include "deepspeed/checkpoint/tag/folder_writers.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/save_mark.h"
#include "deepspeed/checkpoint/tag/tag_content.h"
#include "deepspeed/checkpoint/tag/tag_folder.h"
#include "deepspeed/checkpoint/tag/tag_name.h"
#include "deepspeed/comm/on_all_ranks.h"
#include "deepspeed/comm/watch/call_subject.h"
#include "deepspeed/device/accelerator/current_device.h"
#include "deepspeed/device/accelerator/rng.h"
#include "deepspeed/engine/model/model_tensors.h"
#include "deepspeed/engine/saving/background_saver.h"
#include "deepspeed/engine/saving/checkpoint_content.h"
#include "deepspeed/engine/saving/checkpoints.h"
#include "deepspeed/engine/saving/save_job.h"
#include "deepspeed/engine/saving/training_state.h"
#include "deepspeed/random/cuda_rng_tracker.h"
#include "deepspeed/zero/compressed_exchange.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed {
namespace {

namespace fs = std::filesystem;

class CheckpointSaver {
 public:
  explicit CheckpointSaver(TrainingState& state) : state_(state), parts_(state.parts) {}

  void save(const std::string& directory, const SaveOptions& options);

 private:
  int rank() const { return parts_.groups.all.rank(); }
  void on_all_ranks(const std::function<void()>& work) {
    comm::on_all_ranks<CheckpointError>(parts_.groups.all, "saving", work);
  }
  void check_tag(const std::string& tag) const;
  /// Throws UsageError if a save would lose something, and writes nothing then. It would lose waiting
  /// gradients, which no file holds, or something at the tag's path that is not a checkpoint.
  void check_save(const SaveJob& job, const SaveOptions& options) const;
  bool has_waiting_gradients() const;
  [[noreturn]] void refuse_waiting_gradients() const;
  void require_place(const SaveJob& job) const;
  SaveJob make_job(const std::string& directory, const SaveOptions& options) const;
  void begin(SaveJob& job, const SaveOptions& options);
  /// Collects what this rank will write, sharing the memory of the engine's tensors.
  void collect(SaveJob& job, const SaveOptions& options) const;
  void run(SaveJob job);

  TrainingState& state_;
  EngineParts& parts_;
};

void CheckpointSaver::save(const std::string& directory, const SaveOptions& options) {
  if (directory.empty()) raise<UsageError>("save_checkpoint() needs a directory");
  if (parts_.pool && !parts_.optimizer) {
    raise<UsageError>(state_.is_destroyed
                          ? "save_checkpoint() at stage 3 after destroy(), which gave back the optimizer"
                          : "save_checkpoint() at stage 3 of an engine without an optimizer",
                      ": the weights would lie in its files; call save_16bit_model()");
  }
  if (state_.background_saver) state_.background_saver->wait();
  SaveJob job = make_job(directory, options);
  check_tag(job.tag);
  on_all_ranks([&] { check_save(job, options); });
  warn_of_different_slices(parts_);
  const auto& writer = parts_.config.checkpoint.writer;
  if (writer && writer->type == "MOCK") {
    on_all_ranks([&] { collect(job, options); });
    log::warning("[checkpoint] checkpoint.writer.type is MOCK: ", directory, "/", job.tag, " is not written");
    return;
  }
  begin(job, options);
  run(std::move(job));
}

void CheckpointSaver::check_tag(const std::string& tag) const {
  const std::string& mode = parts_.config.checkpoint.tag_validation;
  if (mode == "Ignore") return;
  const std::vector<std::string> tags = parts_.groups.all.all_gather_text(tag);
  for (size_t rank = 0; rank < tags.size(); ++rank) {
    if (tags[rank] == tags[0]) continue;
    const std::string text = message("the tag '", tags[rank], "' of rank ", rank, " is not that of rank 0, '",
                                     tags[0], "': the checkpoint cannot be resumed on other ranks");
    if (mode == "Fail") raise<CheckpointError>(text);
    log::warning("[checkpoint] ", text);
    return;
  }
}

void CheckpointSaver::check_save(const SaveJob& job, const SaveOptions& options) const {
  if (has_waiting_gradients()) {
    if (!options.without_waiting_gradients) refuse_waiting_gradients();
    if (rank() == 0)
      log::warning("[checkpoint] ", job.directory, "/", job.tag,
                   " lacks the gradients of the accumulation window that is open: a resumed run starts the "
                   "window again");
  }
  checkpoint::require_tag_name(job.tag);
  require_place(job);
}

bool CheckpointSaver::has_waiting_gradients() const {
  const zero::ZeroOptimizer* optimizer = parts_.optimizer.get();
  if (optimizer == nullptr) return false;
  return state_.counters.backwards_since_update != 0 || optimizer->gradients().is_open() ||
         optimizer->gradients().is_paused();
}

void CheckpointSaver::refuse_waiting_gradients() const {
  const bool is_paused = parts_.optimizer->gradients().is_paused();
  const config::DeepSpeedConfig& config = parts_.config;
  const int64_t window = config.managed_gradient_accumulation ? state_.window.steps : 1;
  const std::string scope = state_.in_no_sync ? " inside of no_sync()"
                            : is_paused       ? " inside of coalesce_grad_reduction()"
                                              : "";
  raise<UsageError>(
      "save_checkpoint()", scope,
      " after a backward() whose gradients no step() has used: a checkpoint holds none, and a resumed run "
      "would lack them; ",
      scope.empty() ? "" : "end the scope, ",
      window > 1 ? message("go on to the accumulation boundary, every ", window, " micro steps, and ") : "",
      "call step() first, or give the gradients up with zero_grad()");
}

void CheckpointSaver::require_place(const SaveJob& job) const {
  const std::filesystem::path directory = job.directory;
  if (job.local_rank == 0) checkpoint::require_replaceable(directory / job.tag, /*is_universal_save=*/false);
  if (rank() != 0) return;
  if (job.save_latest) checkpoint::require_no_folder(checkpoint::latest_path(directory));
  if (job.keep_last && job.save_latest && !job.in_turn) {
    log::info("[checkpoint] checkpoint.keep_last counts the tags that are named global_step<N>: '", job.tag,
              "' stays until somebody removes it");
  }
}

SaveJob CheckpointSaver::make_job(const std::string& directory, const SaveOptions& options) const {
  SaveJob job;
  const std::string default_tag = checkpoint::default_tag(state_.counters.global_steps);
  job.directory = directory;
  job.tag = options.tag.empty() ? default_tag : options.tag;
  job.save_latest = options.save_latest;
  job.in_turn = options.save_latest && job.tag == default_tag;
  job.keep_last = parts_.config.checkpoint.keep_last;
  job.writes_script = parts_.optimizer && parts_.config.zero_optimization.stage > 0;
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

void CheckpointSaver::begin(SaveJob& job, const SaveOptions& options) {
  job.save = parts_.groups.all.all_gather_text(rank() == 0 ? checkpoint::new_save() : "").front();
  bool has_begun = false;
  try {
    on_all_ranks([&] {
      if (rank() == 0) {
        auto& writer = state_.folder_writers[job.directory];
        if (!writer) writer = checkpoint::FolderWriter::enter(job.directory);
        const auto before = writer->check(job.tag);
        job.lock = checkpoint::begin_tag(job.directory, job.tag);
        has_begun = true;
        // Another job may have saved the tag while this one waited for the lock.
        writer->check_again(job.tag, before);
        job.folder_writer = writer;
      }
      collect(job, options);
    });
  } catch (...) {
    if (has_begun) job.abandon();
    throw;
  }
}

void CheckpointSaver::run(SaveJob job) {
  BackgroundSaver* saver = state_.background_saver.get();
  if (saver != nullptr && saver->has_room_for(job)) return saver->start(std::move(job));
  if (saver != nullptr) {
    log::warning("[checkpoint] there is too little host memory for a copy of what ", job.directory, "/",
                 job.tag, " will hold: it is written before the training goes on");
  }
  job.run(parts_.groups.all);
}

void CheckpointSaver::collect(SaveJob& job, const SaveOptions& options) const {
  const int data_rank = parts_.data_group().rank(), mp_rank = parts_.groups.model_rank();
  const bool writes_shards = parts_.groups.zero.is_first_replica();  // its ranks come first in the data group
  checkpoint::DeferredTensors deferred;
  const auto add = [&](const fs::path& path, const checkpoint::Value& value) {
    job.file_names.push_back(path.filename().string());
    job.contents.push_back(checkpoint::make_archive_content(value, deferred.stream()));
    job.contents.back().mark = checkpoint::to_text(
        {job.save, job.file_names.back(), state_.counters.global_steps, parts_.groups.all.size()});
  };
  if (parts_.pool && writes_shards) {
    add(checkpoint::sharded_model_states_path(job.directory, job.tag, data_rank, mp_rank),
        checkpoint::build_model_states(model_states(state_, options, deferred)));
  } else if (!parts_.pool && data_rank == 0) {
    add(checkpoint::model_states_path(job.directory, job.tag, mp_rank),
        checkpoint::build_model_states(model_states(state_, options, deferred)));
    for (const auto& [layer, tensors] : layer_tensors(parts_.model, options.exclude_frozen_parameters)) {
      add(checkpoint::layer_states_path(job.directory, job.tag, layer->index, layer->slice),
          checkpoint::build_tensors(tensors));
    }
  }
  if (parts_.optimizer && parts_.config.zero_optimization.stage > 0 && writes_shards) {
    add(checkpoint::optim_states_path(job.directory, job.tag, data_rank, mp_rank, parts_.config.bf16.enabled),
        checkpoint::build_optimizer_states(zero_states(state_, deferred)));
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
    run.micro_steps = state_.window.done(state_.counters.micro_steps);
  if (parts_.optimizer) {
    zero::RankState own = parts_.optimizer->rank_state();
    run.optimizer_tensors = std::move(own.tensors);
    run.optimizer_ranks = own.num_ranks;
  }
  add(checkpoint::rng_states_path(job.directory, job.tag, rank()), checkpoint::build_run_state(run));
}

}  // namespace

void save_checkpoint(TrainingState& state, const std::string& directory, const SaveOptions& options) {
  const comm::CallSubject subject("in save_checkpoint(), which all ranks must call");
  CheckpointSaver(state).save(directory, options);
}

}  // namespace deepspeed
