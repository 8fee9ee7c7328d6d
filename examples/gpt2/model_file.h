// What sampling needs besides the weights, as a small JSON file beside the checkpoints: the sizes of the
// model and its vocabulary.
#pragma once

#include <filesystem>
#include <string>

#include "gpt_config.h"
#include "text_data.h"

namespace gpt2 {

using examples::Vocabulary;
class GPT;

struct ModelFile {
  GptConfig config;  // dropout does not belong to it: it is a matter of training alone
  Vocabulary vocabulary;
};

inline constexpr const char* kModelFileName = "gpt2.json";

/// Writes the model as one line of JSON. Equal models give equal texts.
std::string to_json(const ModelFile& model);

/// Reads what to_json() wrote. Throws deepspeed::IoError, naming `source` and the key, for another text.
ModelFile from_json(const std::string& text, const std::string& source);

/// Writes kModelFileName into `folder`, which is made where it is absent. Throws deepspeed::IoError.
void write_model_file(const std::filesystem::path& folder, const ModelFile& model);

/// Reads kModelFileName from the folder. Throws deepspeed::IoError.
ModelFile read_model_file(const std::filesystem::path& folder);

/// Copies the tensors of a file that zero_to_fp32 wrote into `model`. Throws deepspeed::CheckpointError,
/// naming the parameter, where one is missing, left over or of another shape.
void load_weights(GPT& model, const std::filesystem::path& file);

}  // namespace gpt2
