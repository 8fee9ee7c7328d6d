// Folders of models as Transformers reads and writes them, and files of inputs and scores.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/json.h"
#include "deepspeed/tensor/named_tensor.h"

namespace deepspeed {
class TrainingEngine;
}

namespace examples {

/// Returns copies of the engine's parameters and buffers on the host of rank 0, in their own dtypes, one
/// gathered after the other where ranks share them out. Other ranks get none. All ranks call it.
deepspeed::NamedTensors whole_tensors(deepspeed::TrainingEngine& engine);

/// Writes config.json, whose `dtype` becomes that of the tensors, and model.safetensors, into a folder that
/// is made where it is absent. Throws deepspeed::IoError.
void write_model_folder(const std::filesystem::path& folder, deepspeed::Json config,
                        const deepspeed::NamedTensors& tensors);

/// Reads the tensors of a safetensors file. Throws deepspeed::UsageError, naming the tensor, for one that is
/// not in `known`, and where there is no input_ids of the shape (batch, tokens) int64; IoError.
std::map<std::string, at::Tensor> read_inputs(const std::filesystem::path& file,
                                              const std::set<std::string>& known);

/// Reads text by its bytes, or the tensor input_ids, (N) or (1, N) int64, of a file that ends in
/// .safetensors. "": the texts that lie on every Debian machine. Throws UsageError for a token that is not
/// below `vocabulary`, IoError.
at::Tensor read_training_tokens(const std::string& file, int64_t vocabulary);

/// Writes `logits` under that name.
void write_logits(const std::filesystem::path& file, const at::Tensor& logits);

}  // namespace examples
