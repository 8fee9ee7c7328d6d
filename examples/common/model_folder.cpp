#include "model_folder.h"

#include <fstream>

#include <ATen/Functions.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/archive/safetensors.h"
#include "deepspeed/engine/training_engine.h"
#include "deepspeed/zero/gathered_parameters.h"

#include "text_data.h"

namespace examples {
using deepspeed::IoError;
using deepspeed::NamedTensors;
using deepspeed::raise;
using deepspeed::UsageError;
namespace fs = std::filesystem;

namespace {

const char* name_of_dtype(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return "bfloat16";
  if (dtype == at::kHalf) return "float16";
  return dtype == at::kDouble ? "float64" : "float32";
}

}  // namespace

NamedTensors whole_tensors(deepspeed::TrainingEngine& engine) {
  NamedTensors found;
  for (const auto& [name, tensor] : engine.module_state_dict()) {
    const deepspeed::zero::GatheredParameters gathered({tensor});
    if (engine.rank() == 0) found.push_back({name, at::empty(tensor.sizes(), tensor.scalar_type())});
    if (engine.rank() == 0) found.back().tensor.copy_(tensor.detach());
  }
  return found;
}

void write_model_folder(const fs::path& folder, deepspeed::Json config, const NamedTensors& tensors) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!tensors.empty()) {
    config["dtype"] = name_of_dtype(tensors.front().tensor.scalar_type());
  }
  const fs::path file = folder / "config.json";
  std::ofstream stream(file);
  stream << config.dump(2) << '\n';
  if (!stream.flush()) raise<IoError>(file.string(), " cannot be written");
  deepspeed::checkpoint::write_safetensors(folder / "model.safetensors", tensors);
}

std::map<std::string, at::Tensor> read_inputs(const fs::path& file, const std::set<std::string>& known) {
  std::map<std::string, at::Tensor> inputs;
  for (const auto& [name, tensor] : deepspeed::checkpoint::read_safetensors(file)) {
    if (!known.contains(name)) {
      raise<UsageError>(file.string(), " has the tensor ", name, ", which this model does not take");
    }
    inputs.emplace(name, tensor);
  }
  const auto found = inputs.find("input_ids");
  if (found == inputs.end() || found->second.scalar_type() != at::kLong) {
    raise<UsageError>(file.string(), " has no tensor input_ids of int64");
  }
  return inputs;
}

at::Tensor read_training_tokens(const std::string& file, int64_t vocabulary) {
  at::Tensor tokens;
  if (file.ends_with(".safetensors")) {
    tokens = read_inputs(file, {"input_ids"}).at("input_ids").flatten();
  } else {
    tokens = Vocabulary::of_all_bytes().encode(file.empty() ? read_default_text() : read_text(file));
  }
  if (tokens.numel() == 0) raise<UsageError>(file, " has no tokens");
  const auto least = tokens.min().item<int64_t>(), most = tokens.max().item<int64_t>();
  if (least < 0 || most >= vocabulary) {
    raise<UsageError>(file.empty() ? "the text" : file, " has the token ", least < 0 ? least : most,
                      ", which is outside of the model's vocab_size, ", vocabulary);
  }
  return tokens;
}

void write_logits(const fs::path& file, const at::Tensor& logits) {
  deepspeed::checkpoint::write_safetensors(file, {{"logits", logits}});
}

}  // namespace examples
