#include "run_checkpoints.h"

#include <deepspeed/checkpoint/pickle/value.h>

namespace gpt2 {
namespace {

constexpr const char* kClientKey = "gpt2";

}  // namespace

void save(deepspeed::TrainingEngine& engine, const std::string& folder, const ModelFile& model) {
  if (engine.world().rank() == 0) write_model_file(folder, model);
  engine.save_checkpoint(folder, {.tag = "", .client_state = {{kClientKey, to_json(model)}}});
}

std::string resume(deepspeed::TrainingEngine& engine, const Options& options, const ModelFile& model) {
  const auto loaded = engine.load_checkpoint(options.resume, {.tag = options.resume_tag});
  if (loaded.path.empty()) {
    deepspeed::raise<deepspeed::CheckpointError>("there is no checkpoint in ", options.resume);
  }
  const auto* trained = loaded.client_state.find(kClientKey);
  if (trained == nullptr || trained->as_string() != to_json(model)) {
    deepspeed::raise<deepspeed::CheckpointError>(
        loaded.path, " is of another model or another text, expected ", to_json(model));
  }
  return "resumed from " + loaded.path + " at step " + std::to_string(engine.global_steps());
}

}  // namespace gpt2
