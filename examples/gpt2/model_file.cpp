#include "model_file.h"

#include <fstream>
#include <set>

#include <torch/utils.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"

#include "gpt.h"

namespace gpt2 {
namespace fs = std::filesystem;
using deepspeed::CheckpointError;
using deepspeed::IoError;
using deepspeed::Json;
using deepspeed::raise;

std::string to_json(const ModelFile& model) {
  Json json;
  json["layers"] = model.config.layers;
  json["heads"] = model.config.heads;
  json["width"] = model.config.width;
  json["context"] = model.config.context;
  json["vocabulary"] = model.vocabulary.bytes();
  return json.dump();
}

ModelFile from_json(const std::string& text, const std::string& source) {
  try {
    const Json json = Json::parse(text);
    ModelFile model{{}, Vocabulary(json.at("vocabulary").get<std::vector<uint8_t>>())};
    model.config.vocabulary = model.vocabulary.size();
    model.config.layers = json.at("layers").get<int64_t>();
    model.config.heads = json.at("heads").get<int64_t>();
    model.config.width = json.at("width").get<int64_t>();
    model.config.context = json.at("context").get<int64_t>();
    validate(model.config);
    return model;
  } catch (const Json::exception& error) {
    raise<IoError>(source, " does not describe a model: ", error.what());
  }
}

void write_model_file(const fs::path& folder, const ModelFile& model) {
  std::error_code error;
  fs::create_directories(folder, error);
  const fs::path file = folder / kModelFileName;
  std::ofstream stream(file);
  stream << to_json(model) << '\n';
  if (!stream.flush()) raise<IoError>(file.string(), " cannot be written");
}

ModelFile read_model_file(const fs::path& folder) {
  const fs::path file = folder / kModelFileName;
  return from_json(examples::read_text(file), file.string());
}

void load_weights(GPT& model, const fs::path& file) {
  const auto archive = deepspeed::checkpoint::read_torch_archive(file);
  const auto& tensors = archive.as_dict();
  torch::NoGradGuard no_grad;
  std::set<std::string> names;
  for (auto& item : model.named_parameters()) {
    const auto* value = tensors.find(item.key());
    if (value == nullptr) {
      raise<CheckpointError>(file.string(), " has no parameter ", item.key());
    }
    const auto& tensor = value->as_tensor();
    if (tensor.sizes() != item.value().sizes()) {
      raise<CheckpointError>(item.key(), " in ", file.string(), " has the shape ", c10::str(tensor.sizes()),
                             ", expected ", c10::str(item.value().sizes()));
    }
    item.value().copy_(tensor);
    names.insert(item.key());
  }
  for (const auto& [key, value] : tensors.items()) {
    if (!names.contains(key.as_string())) {
      raise<CheckpointError>(file.string(), " has the tensor ", key.as_string(),
                             ", which this model does not have");
    }
  }
}

}  // namespace gpt2
