// What a save needs before it writes anything.
#include <filesystem>

#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/layout.h"
#include "deepspeed/checkpoint/tag_content.h"
#include "deepspeed/checkpoint/tag_name.h"
#include "deepspeed/engine/checkpoint_io.h"

namespace deepspeed {
void CheckpointIo::check_save(const SaveJob& job) const {
  checkpoint::require_tag_name(job.tag);
  require_place(job);
}

void CheckpointIo::require_place(const SaveJob& job) const {
  const std::filesystem::path directory = job.directory;
  if (job.local_rank == 0) checkpoint::require_replaceable(directory / job.tag, /*is_universal_save=*/false);
  if (engine_.rank() != 0) return;
  if (job.save_latest) checkpoint::require_no_folder(checkpoint::latest_path(directory));
  if (job.keep_last && job.save_latest && !job.in_turn) {
    log::info("[checkpoint] checkpoint.keep_last counts the tags that are named global_step<N>: '", job.tag,
              "' stays until somebody removes it");
  }
}

}  // namespace deepspeed
