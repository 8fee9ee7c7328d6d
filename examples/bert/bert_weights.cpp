#include "bert_weights.h"

#include <algorithm>
#include <array>
#include <map>
#include <regex>

#include <torch/utils.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/weights/weight_source.h"

#include "bert.h"

namespace bert {
using deepspeed::CheckpointError;
using deepspeed::NamedTensors;

namespace {

// A part of a layer in both names; DeepSpeed's end in w and b.
constexpr auto kParts = std::to_array<std::pair<const char*, const char*>>({
    {"attn_o", "attention.output.dense"},
    {"attn_n", "attention.output.LayerNorm"},
    {"inter_", "intermediate.dense"},
    {"output_", "output.dense"},
    {"norm_", "output.LayerNorm"},
});

constexpr const char* kBias = "cls.predictions.bias";
constexpr const char* kDecoderBias = "cls.predictions.decoder.bias";

/// Appends a parameter of a layer, whose name is `prefix` and `name`.
void append_layer_part(NamedTensors& found, const std::string& prefix, std::string name,
                       const at::Tensor& tensor) {
  const std::string kind = name.ends_with('w') ? ".weight" : ".bias";
  name.pop_back();
  if (name == "attn_qkv") {
    const int64_t rows = tensor.size(0) / 3;
    for (int64_t i = 0; i < 3; ++i) {
      const char* part = std::to_array({"query", "key", "value"})[static_cast<size_t>(i)];
      found.push_back({prefix + "attention.self." + part + kind, tensor.narrow(0, i * rows, rows)});
    }
    return;
  }
  for (const auto& [own, other] : kParts) {
    if (name == own) found.push_back({prefix + other + kind, tensor});
  }
}

/// Returns the name that newer files have: old ones call what a norm multiplies by and adds gamma and beta.
std::string newer_name(const std::string& name) {
  static const std::regex gamma("\\.gamma$"), beta("\\.beta$");
  return std::regex_replace(std::regex_replace(name, gamma, ".weight"), beta, ".bias");
}

/// Weights of other tasks, and what a file repeats.
bool is_of_another_head(const std::string& name, const BertConfig& config) {
  static const std::regex others(
      "^(bert\\.pooler|cls\\.seq_relationship)\\..*|.*\\.position_ids|cls\\.predictions\\.decoder\\.bias");
  return std::regex_match(name, others) ||
         (config.tie_word_embeddings && name == "cls.predictions.decoder.weight");
}

}  // namespace

NamedTensors with_hugging_face_names(const NamedTensors& tensors) {
  static const std::regex of_layer("(bert\\.encoder\\.layer\\.[0-9]+\\.)([a-z_]+)");
  NamedTensors found;
  for (const auto& [name, tensor] : tensors) {
    std::smatch parts;
    if (std::regex_match(name, parts, of_layer)) {
      append_layer_part(found, parts[1], parts[2], tensor);
    } else {
      found.push_back({name, tensor});
    }
  }
  return found;
}

void repeat_bias_of_decoder(NamedTensors& tensors) {
  const auto bias = std::ranges::find(tensors, kBias, &deepspeed::NamedTensor::name);
  if (bias != tensors.end()) tensors.push_back({kDecoderBias, bias->tensor.clone()});
}

std::vector<std::string> load_bert(Bert& model, const std::filesystem::path& folder) {
  NamedTensors own;
  for (const auto& item : model.named_parameters()) own.push_back({item.key(), item.value().detach()});
  std::map<std::string, at::Tensor> targets;
  for (const auto& [name, tensor] : with_hugging_face_names(own)) targets.emplace(name, tensor);

  const auto source = deepspeed::checkpoint::open_weights(folder);
  std::vector<std::string> left_out;
  std::vector<std::pair<size_t, at::Tensor>> copies;
  std::string problems;
  // A decoder that is not the embedding has a bias of its own, in whose place others stay unused.
  const bool has_own_bias =
      !model.config().tie_word_embeddings &&
      std::ranges::any_of(source->weights(), [](const auto& weight) { return weight.name == kDecoderBias; });
  for (size_t i = 0; i < source->weights().size(); ++i) {
    const auto& [file_name, tensor] = source->weights()[i];
    const bool is_unused_bias = has_own_bias && file_name == kBias;
    const bool is_own_bias = has_own_bias && file_name == kDecoderBias;
    const std::string name = is_own_bias ? kBias : newer_name(file_name);
    if (is_unused_bias || is_of_another_head(name, model.config())) {
      left_out.push_back(file_name);
      continue;
    }
    const auto target = targets.find(name);
    if (target == targets.end()) {
      problems += "\n  " + file_name + " is unknown to the model";
    } else if (target->second.sizes() != tensor.sizes()) {
      problems += deepspeed::message("\n  ", file_name, " has the shape ", tensor.sizes(), ", expected ",
                                     target->second.sizes());
    } else {
      copies.emplace_back(i, target->second);
    }
    if (target != targets.end()) targets.erase(target);
  }
  for (const auto& [name, tensor] : targets) problems += "\n  " + name + " is missing";
  if (!problems.empty()) {
    deepspeed::raise<CheckpointError>(source->path().string(),
                                      " does not fit the model of its config.json:", problems);
  }
  const torch::NoGradGuard no_grad;
  for (auto& [index, target] : copies) target.copy_(source->load(index));
  return left_out;
}

}  // namespace bert
