#include "hugging_face.h"

#include <torch/utils.h>

#include <deepspeed/deepspeed.h>

#include "config_keys.h"
#include "gpt.h"
#include "model_folder.h"

namespace gpt2 {
using deepspeed::Json;
namespace fs = std::filesystem;

namespace {

constexpr const char* kPrefix = "transformer.";
constexpr const char* kMatrices = "(c_attn|c_proj|c_fc)\\.weight$";  // of Conv1D: [in, out]

/// The files of older versions hold the masks of the attention, and some hold the head, which is tied.
deepspeed::LoadWeightsOptions load_options() {
  return {.rename_rules = {{"^transformer\\.", ""},
                           {"^lm_head\\.weight$", ""},
                           {"^h\\.[0-9]+\\.attn\\.(bias|masked_bias)$", ""}},
          .transpose = {kMatrices}};
}

bool is_matrix(const std::string& name) {
  return name.ends_with("c_attn.weight") || name.ends_with("c_proj.weight") || name.ends_with("c_fc.weight");
}

}  // namespace

HuggingFaceGpt read_hugging_face(const fs::path& path) {
  examples::ConfigKeys keys(path, "gpt2");
  GptConfig config;
  config.vocabulary = keys.get<int64_t>("vocab_size");
  config.context = keys.get<int64_t>("n_positions");
  config.layers = keys.get<int64_t>("n_layer");
  config.heads = keys.get<int64_t>("n_head");
  config.width = keys.get<int64_t>("n_embd");
  config.inner = keys.get<int64_t>("n_inner", 0);
  config.norm_eps = keys.get<double>("layer_norm_epsilon", 1e-5);
  config.dropout = keys.get<double>("resid_pdrop", 0.1);
  for (const char* other : {"embd_pdrop", "attn_pdrop"}) {
    const double dropout = keys.get<double>(other, 0.1);
    if (dropout == config.dropout) continue;
    deepspeed::raise<deepspeed::NotSupportedError>(keys.source(), ": ", other, " is ", dropout,
                                                   ", expected that of resid_pdrop, ", config.dropout,
                                                   ": this model has one dropout");
  }
  const auto activation = keys.get<std::string>("activation_function", "gelu_new");
  if (activation != "gelu_pytorch_tanh")  // another name of the same function
    keys.only("activation_function", "gelu_new");
  keys.only("n_ctx", config.context);
  keys.only("scale_attn_weights", true);
  keys.only("scale_attn_by_inverse_layer_idx", false);
  keys.only("reorder_and_upcast_attn", false);
  keys.only("add_cross_attention", false);
  keys.only("tie_word_embeddings", true);
  keys.only("pruned_heads", Json::object());
  validate(config);
  return {config, keys.others()};
}

void load_hugging_face(const std::shared_ptr<GPT>& model, const fs::path& folder) {
  deepspeed::load_weights(model, folder, load_options());
}

void load_hugging_face(deepspeed::TrainingEngine& engine, const fs::path& folder) {
  deepspeed::load_weights(engine, folder, load_options());
}

void save_hugging_face(deepspeed::TrainingEngine& engine, const fs::path& folder, const GptConfig& config,
                       const Json& other_keys) {
  auto tensors = examples::whole_tensors(engine);
  if (engine.rank() != 0) return;
  for (auto& [name, tensor] : tensors) {
    if (is_matrix(name)) tensor = tensor.t().contiguous();
    name.insert(0, kPrefix);
  }
  Json json = other_keys.is_object() ? other_keys : Json::object();
  json["architectures"] = Json::array({"GPT2LMHeadModel"});
  json["model_type"] = "gpt2";
  json["vocab_size"] = config.vocabulary;
  json["n_positions"] = config.context;
  json["n_layer"] = config.layers;
  json["n_head"] = config.heads;
  json["n_embd"] = config.width;
  json["n_inner"] = config.inner > 0 ? Json(config.inner) : Json();
  json["activation_function"] = "gelu_new";
  json["layer_norm_epsilon"] = config.norm_eps;
  for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) json[key] = config.dropout;
  // Defaults of Transformers are outside of a small vocabulary.
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    if (!json.contains(key)) json[key] = nullptr;
  }
  examples::write_model_folder(folder, std::move(json), tensors);
}

void write_logits(const examples::ModelFolders& folders) {
  const torch::NoGradGuard no_grad;
  const auto model = std::make_shared<GPT>(read_hugging_face(folders.model).config);
  load_hugging_face(model, folders.model);
  model->eval();
  const auto inputs = examples::read_inputs(folders.inputs, {"input_ids"});
  examples::write_logits(folders.logits, model->logits(inputs.at("input_ids")));
}

}  // namespace gpt2
