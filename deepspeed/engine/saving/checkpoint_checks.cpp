// What a save needs before it writes anything.
#include <filesystem>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/tag_content.h"
#include "deepspeed/checkpoint/tag/tag_name.h"
#include "deepspeed/engine/saving/checkpoint_io.h"
#include "deepspeed/zero/gradients/grad_reducer.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed {
void CheckpointIo::check_save(const SaveJob& job, const SaveOptions& options) const {
  if (has_waiting_gradients()) {
    if (!options.without_waiting_gradients) refuse_waiting_gradients();
    if (rank() == 0)
      log::warning(
          "[checkpoint] ", job.directory, "/", job.tag,
          " lacks the gradients of the accumulation window that is open: a run that resumes begins it anew");
  }
  checkpoint::require_tag_name(job.tag);
  require_place(job);
}

bool CheckpointIo::has_waiting_gradients() const {
  const zero::ZeroOptimizer* optimizer = parts_.optimizer.get();
  if (optimizer == nullptr) return false;
  return state_.counters.backwards_since_update != 0 || optimizer->gradients().is_open() ||
         optimizer->gradients().is_paused();
}

void CheckpointIo::refuse_waiting_gradients() const {
  const bool is_paused = parts_.optimizer->gradients().is_paused();
  const config::DeepSpeedConfig& config = parts_.config;
  const int64_t window = config.managed_gradient_accumulation ? config.gradient_accumulation_steps : 1;
  const std::string scope = state_.in_no_sync ? " inside of no_sync()"
                            : is_paused       ? " inside of coalesce_grad_reduction()"
                                              : "";
  raise<UsageError>(
      "save_checkpoint()", scope,
      " after a backward() whose gradients no step() has used: a checkpoint holds none, and a "
      "resumed run would lack them; ",
      scope.empty() ? "" : "end the scope, ",
      window > 1 ? message("go on to the accumulation boundary, every ", window, " micro steps, and ") : "",
      "call step() first, or give the gradients up with zero_grad()");
}

void CheckpointIo::require_place(const SaveJob& job) const {
  const std::filesystem::path directory = job.directory;
  if (job.local_rank == 0) checkpoint::require_replaceable(directory / job.tag, /*is_universal_save=*/false);
  if (rank() != 0) return;
  if (job.save_latest) checkpoint::require_no_folder(checkpoint::latest_path(directory));
  if (job.keep_last && job.save_latest && !job.in_turn) {
    log::info("[checkpoint] checkpoint.keep_last counts the tags that are named global_step<N>: '", job.tag,
              "' stays until somebody removes it");
  }
}

}  // namespace deepspeed
