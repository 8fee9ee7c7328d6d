#include "deepspeed/engine/saving/training_state.h"

#include <set>
#include <string>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/tag/folder_writers.h"
#include "deepspeed/engine/saving/background_saver.h"

namespace deepspeed {
namespace {

std::set<std::string> configured_sparse_names(const EngineParts& parts) {
  std::set<std::string> names;
  if (!parts.config.sparse_gradients) return names;
  for (const ModuleParameters& module : parts.model.modules) {
    if (module.kind != ModuleKind::kEmbedding) continue;
    for (const at::Tensor& weight : module.parameters) {
      for (const NamedTensor& param : parts.model.parameters)
        if (param.tensor.is_same(weight)) names.insert(param.name);
    }
  }
  return names;
}

}  // namespace

TrainingState::TrainingState(EngineParts given)
    : parts(std::move(given)), sparse_names(configured_sparse_names(parts)) {
  const auto& writer = parts.config.checkpoint.writer;
  if (writer && writer->decoupled)
    background_saver = std::make_unique<BackgroundSaver>(parts.world, parts.groups.all);
}

TrainingState::~TrainingState() = default;

void require_whole(const TrainingState& state, const char* call) {
  if (state.loaded_in_part.empty()) return;
  raise<UsageError>(
      call, "(): the engine holds parts of a checkpoint, since load_checkpoint() failed while it wrote: ",
      state.loaded_in_part,
      "; load a checkpoint with its optimizer states, or build the model and its engine again");
}

}  // namespace deepspeed
