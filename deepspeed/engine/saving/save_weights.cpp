// Writes only the weights, in one file by rank 0, or by the first rank that holds each part of the model.
#include <filesystem>
#include <string>
#include <unordered_map>
#include <utility>

#include <ATen/ops/empty.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/file/atomic_file.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/tag_name.h"
#include "deepspeed/comm/on_all_ranks.h"
#include "deepspeed/comm/watch/call_subject.h"
#include "deepspeed/engine/guards/slice_agreement.h"
#include "deepspeed/engine/model/model_tensors.h"
#include "deepspeed/engine/saving/checkpoints.h"
#include "deepspeed/engine/saving/training_state.h"
#include "deepspeed/zero/gathered_parameters.h"
#include "deepspeed/zero/params/set_values.h"

namespace deepspeed {
namespace {

/// Returns whether this rank writes data that several ranks hold.
bool writes_weights(const EngineParts& parts) { return parts.data_group().rank() == 0; }

/// Gathers one parameter at a time into the host memory of the writing rank.
void gather_module(const EngineParts& parts, NamedTensors& tensors) {
  std::unordered_map<std::string, at::Tensor> whole;
  for (const NamedTensor& param : parts.model.parameters) {
    if (!zero::is_partitioned(param.tensor)) continue;
    const zero::GatheredParameters gathered({param.tensor});
    if (!writes_weights(parts)) continue;
    const at::Tensor copy = at::empty(param.tensor.sizes(), param.tensor.scalar_type());
    copy.copy_(param.tensor.detach());
    whole.emplace(param.name, copy);
  }
  for (const auto& [alias, owner] : parts.model.shared_parameters) {
    if (const auto entry = whole.find(owner); entry != whole.end()) whole.emplace(alias, entry->second);
  }
  for (auto& [name, tensor] : tensors) {
    if (const auto entry = whole.find(name); entry != whole.end()) tensor = entry->second;
  }
}

// If ranks divide the model, each part has a file.
std::string name_of_part(const EngineParts& parts, const std::string& file_name) {
  if (!parts.groups.shares_model()) return file_name;
  return checkpoint::name_of_slice(parts.groups.model_rank(), file_name);
}

}  // namespace

void warn_of_different_slices(const EngineParts& parts) {
  if (parts.groups.num_slices() == 1) return;
  const bool compares_whole = parts.data_group().rank() == 0;
  const std::string difference = difference_of_slices(
      {.model = parts.groups.model, .slices = parts.groups.slices, .compares_whole = compares_whole},
      parts.model.alike_on_slices);
  if (difference.empty() || parts.groups.model_rank() != 0) return;
  log::warning(
      "[checkpoint] the slices of a layer no longer hold alike what they should: ", difference,
      "; each is saved as it is. Gradients or random numbers of the slices differ: sum the gradients ",
      "of what goes into slices, and seed by model_parallel_cuda_manual_seed()");
}

void save_16bit_model(TrainingState& state, const std::string& directory, const std::string& file_name,
                      bool exclude_frozen_parameters) {
  const comm::CallSubject subject("in save_16bit_model(), which all ranks must call");
  const EngineParts& parts = state.parts;
  if (directory.empty() || file_name.empty()) {
    raise<UsageError>("save_16bit_model() needs a directory and a file name");
  }
  if (!parts.model.stored_layers.empty()) {
    raise<NotSupportedError>(
        "save_16bit_model(): the stages of a pipeline have parts of the model each; call "
        "save_checkpoint() and make weights of it by zero_to_fp32");
  }
  if (checkpoint::is_name_beside_tags(file_name)) {
    raise<UsageError>("save_16bit_model(): '", file_name,
                      "' is the name of a file of checkpoints, which would be lost; choose another");
  }
  if (parts.pool && !parts.config.zero_optimization.stage3_gather_16bit_weights_on_model_save) {
    raise<UsageError>(
        "save_16bit_model() at stage 3 gathers the whole model on rank 0; set "
        "zero_optimization.stage3_gather_16bit_weights_on_model_save to allow that");
  }
  warn_of_different_slices(parts);
  NamedTensors tensors = module_tensors(parts.model, exclude_frozen_parameters);
  if (parts.pool) gather_module(parts, tensors);
  comm::on_all_ranks<CheckpointError>(parts.groups.all, "saving the model", [&] {
    if (!writes_weights(parts)) return;
    checkpoint::make_folders(directory);
    checkpoint::Dict module(/*ordered=*/true);
    for (auto& [name, tensor] : tensors) module.items().emplace_back(name, tensor);
    checkpoint::write_torch_archive(std::filesystem::path(directory) / name_of_part(parts, file_name),
                                    std::move(module));
  });
}

}  // namespace deepspeed
