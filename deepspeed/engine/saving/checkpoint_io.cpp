#include "deepspeed/engine/saving/checkpoint_io.h"

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/comm/on_all_ranks.h"
#include "deepspeed/comm/watch/call_subject.h"
#include "deepspeed/engine/saving/background_saver.h"
#include "deepspeed/engine/saving/checkpoints.h"

namespace deepspeed {

void CheckpointIo::on_all_ranks(const char* what, const std::function<void()>& work) {
  comm::on_all_ranks<CheckpointError>(parts_.groups.all, what, work);
}

void CheckpointIo::check_tag(const std::string& tag) const {
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

void CheckpointIo::wait_for_save() {
  if (state_.background_saver) state_.background_saver->wait();
}

void save_checkpoint(TrainingState& state, const std::string& directory, const SaveOptions& options) {
  const comm::CallSubject subject("in save_checkpoint(), which all ranks must call");
  CheckpointIo(state).save(directory, options);
}

LoadResult load_checkpoint(TrainingState& state, const std::string& directory, const LoadOptions& options) {
  const comm::CallSubject subject("in load_checkpoint(), which all ranks must call");
  return CheckpointIo(state).load(directory, options);
}

void save_16bit_model(TrainingState& state, const std::string& directory, const std::string& file_name,
                      bool exclude_frozen_parameters) {
  const comm::CallSubject subject("in save_16bit_model(), which all ranks must call");
  CheckpointIo(state).save_16bit_model(directory, file_name, exclude_frozen_parameters);
}

}  // namespace deepspeed
