// Loads weights trained elsewhere, for instance in Python, into a model or an engine by name.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "deepspeed/base/export.h"
#include "deepspeed/checkpoint/weights/load_weights_options.h"

namespace torch::nn {
class Module;
template <class Contained>
class ModuleHolder;
}  // namespace torch::nn

namespace deepspeed {

class TrainingEngine;
using checkpoint::LoadedWeights;
using checkpoint::LoadWeightsOptions;

/// Copies the weights in `path` into a model's parameters and buffers, before initialize(). `path` is a
/// torch.save file (.bin, .pt, .pth), a safetensors file, the index of a set of shards, or a folder with one
/// of these under Hugging Face's names (checkpoint::open_weights()). Values are converted to the model's
/// dtypes. Only one tensor of the file is in memory at a time. Returns what was loaded and, with strict =
/// false, what was left out. Throws one CheckpointError that lists everything that does not fit; the model is
/// then unchanged.
DEEPSPEED_API LoadedWeights load_weights(const std::shared_ptr<torch::nn::Module>& model,
                                         const std::filesystem::path& path,
                                         const LoadWeightsOptions& options = {});

/// Loads weights into an engine's model; its fp32 masters are set from the model. Collective. Each rank reads
/// the files; if one fails, all throw.
DEEPSPEED_API LoadedWeights load_weights(TrainingEngine& engine, const std::filesystem::path& path,
                                         const LoadWeightsOptions& options = {});

/// Loads weights into a model in a TORCH_MODULE holder.
template <class Contained>
LoadedWeights load_weights(const torch::nn::ModuleHolder<Contained>& model, const std::filesystem::path& path,
                           const LoadWeightsOptions& options = {}) {
  return load_weights(std::shared_ptr<torch::nn::Module>(model.ptr()), path, options);
}

/// Loads the fp32 weights of a checkpoint, ours or DeepSpeed's, of any stage. Works like load_weights() and
/// writes no intermediate files. `tag`: default is the one in `latest`.
DEEPSPEED_API LoadedWeights load_zero_checkpoint_weights(const std::shared_ptr<torch::nn::Module>& model,
                                                         const std::filesystem::path& dir,
                                                         const std::optional<std::string>& tag = std::nullopt,
                                                         const LoadWeightsOptions& options = {});

/// Calls load_zero_checkpoint_weights() under DeepSpeed's name, and returns the model.
template <class Model>
Model load_state_dict_from_zero_checkpoint(Model model, const std::filesystem::path& dir,
                                           const std::optional<std::string>& tag = std::nullopt,
                                           const LoadWeightsOptions& options = {}) {
  if constexpr (requires { model.ptr(); }) {
    load_zero_checkpoint_weights(model.ptr(), dir, tag, options);
  } else {
    load_zero_checkpoint_weights(model, dir, tag, options);
  }
  return model;
}

}  // namespace deepspeed
