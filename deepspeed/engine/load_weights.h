// Weights trained elsewhere, in Python for instance, into a model or an engine, by name.
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

/// Copies the weights of `path` into the parameters and buffers of a model, before initialize(). `path`: a
/// file of torch.save (.bin, .pt, .pth) or safetensors, the index of a set of shards, or a folder that holds
/// one of these under Hugging Face's names (checkpoint::open_weights()). Values take the model's dtypes; of
/// one tensor after the other the file's copy is in memory. Returns what was loaded and, with strict = false,
/// what was left out. Throws one CheckpointError that lists everything that does not fit; then nothing has
/// changed.
DEEPSPEED_API LoadedWeights load_weights(const std::shared_ptr<torch::nn::Module>& model,
                                         const std::filesystem::path& path,
                                         const LoadWeightsOptions& options = {});

/// The same for the model of an engine; the optimizer's fp32 weights become the model's. All ranks call it,
/// each reads the files; where it fails on one, all throw.
DEEPSPEED_API LoadedWeights load_weights(TrainingEngine& engine, const std::filesystem::path& path,
                                         const LoadWeightsOptions& options = {});

/// The same for a model in a TORCH_MODULE holder.
template <class Contained>
LoadedWeights load_weights(const torch::nn::ModuleHolder<Contained>& model, const std::filesystem::path& path,
                           const LoadWeightsOptions& options = {}) {
  return load_weights(std::shared_ptr<torch::nn::Module>(model.ptr()), path, options);
}

/// Loads the fp32 weights of a checkpoint of save_checkpoint(), ours or DeepSpeed's, of any stage, as
/// load_weights() does. `tag`: by default the one in `latest`. Nothing is converted to files in between.
DEEPSPEED_API LoadedWeights load_zero_checkpoint_weights(const std::shared_ptr<torch::nn::Module>& model,
                                                         const std::filesystem::path& dir,
                                                         const std::optional<std::string>& tag = std::nullopt,
                                                         const LoadWeightsOptions& options = {});

/// The same under DeepSpeed's name; gives the model back.
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
