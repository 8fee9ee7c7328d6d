#include "deepspeed/engine/checkpoint_io.h"

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/on_all_ranks.h"
#include "deepspeed/engine/saving/background_saver.h"

namespace deepspeed {

void CheckpointIo::on_all_ranks(const char* what, const std::function<void()>& work) {
  comm::on_all_ranks<CheckpointError>(engine_.group_, "checkpoint", what, work);
}

void CheckpointIo::check_tag(const std::string& tag) const {
  const std::string& mode = engine_.config_.checkpoint.tag_validation;
  if (mode == "Ignore") return;
  const std::vector<std::string> tags = engine_.group_.all_gather_text(tag);
  for (size_t rank = 0; rank < tags.size(); ++rank) {
    if (tags[rank] == tags[0]) continue;
    const std::string text = message("the tag '", tags[rank], "' of rank ", rank, " is not that of rank 0, '",
                                     tags[0], "': the checkpoint cannot be resumed on other ranks");
    if (mode == "Fail") raise<CheckpointError>("checkpoint", text);
    log::warning("[checkpoint] ", text);
    return;
  }
}

void Engine::save_checkpoint(const std::string& directory, const SaveOptions& options) {
  require_states_here("save_checkpoint");
  CheckpointIo(*this).save(directory, options);
}

LoadResult Engine::load_checkpoint(const std::string& directory, const LoadOptions& options) {
  require_memory_here("load_checkpoint");  // one that failed in the middle is made good by the next
  return CheckpointIo(*this).load(directory, options);
}

void Engine::wait_for_checkpoint() {
  if (background_saver_) background_saver_->wait();
}

bool Engine::checkpoint_is_saved() const { return !background_saver_ || background_saver_->is_done(); }

void Engine::save_16bit_model(const std::string& directory, const std::string& file_name,
                              bool exclude_frozen_parameters) {
  require_states_here("save_16bit_model");
  CheckpointIo(*this).save_16bit_model(directory, file_name, exclude_frozen_parameters);
}

}  // namespace deepspeed
