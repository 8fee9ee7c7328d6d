#include "config_keys.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace examples {
using deepspeed::ConfigError;
using deepspeed::Json;
using deepspeed::NotSupportedError;
using deepspeed::raise;
namespace fs = std::filesystem;

namespace {

// What tokenizers, generation, heads of other tasks and Transformers itself read.
constexpr auto kOfOthers = std::to_array<std::string_view>({"_attn_implementation_autoset",
                                                            "_name_or_path",
                                                            "architectures",
                                                            "auto_map",
                                                            "bad_words_ids",
                                                            "begin_suppress_tokens",
                                                            "bos_token_id",
                                                            "chunk_size_feed_forward",
                                                            "classifier_dropout",
                                                            "cls_token_id",
                                                            "decoder_start_token_id",
                                                            "diversity_penalty",
                                                            "do_sample",
                                                            "dtype",
                                                            "early_stopping",
                                                            "encoder_no_repeat_ngram_size",
                                                            "eos_token_id",
                                                            "exponential_decay_length_penalty",
                                                            "finetuning_task",
                                                            "forced_bos_token_id",
                                                            "forced_eos_token_id",
                                                            "gradient_checkpointing",
                                                            "id2label",
                                                            "initializer_range",
                                                            "is_encoder_decoder",
                                                            "label2id",
                                                            "length_penalty",
                                                            "max_length",
                                                            "min_length",
                                                            "no_repeat_ngram_size",
                                                            "num_beam_groups",
                                                            "num_beams",
                                                            "num_labels",
                                                            "num_return_sequences",
                                                            "output_attentions",
                                                            "output_hidden_states",
                                                            "output_past",
                                                            "output_scores",
                                                            "pad_token_id",
                                                            "prefix",
                                                            "problem_type",
                                                            "remove_invalid_values",
                                                            "repetition_penalty",
                                                            "return_dict",
                                                            "return_dict_in_generate",
                                                            "sep_token_id",
                                                            "summary_activation",
                                                            "summary_first_dropout",
                                                            "summary_proj_to_labels",
                                                            "summary_type",
                                                            "summary_use_proj",
                                                            "suppress_tokens",
                                                            "task_specific_params",
                                                            "temperature",
                                                            "tokenizer_class",
                                                            "top_k",
                                                            "top_p",
                                                            "torch_dtype",
                                                            "torchscript",
                                                            "transformers_version",
                                                            "typical_p",
                                                            "use_cache"});

fs::path file_of(const fs::path& path) { return fs::is_directory(path) ? path / "config.json" : path; }

}  // namespace

ConfigKeys::ConfigKeys(const fs::path& path, const std::string& model_type)
    : ConfigKeys(deepspeed::read_json_file(file_of(path)), file_of(path).string()) {
  const auto type = get<std::string>("model_type");
  if (type != model_type) {
    raise<ConfigError>(source_, ": model_type is ", type, ", expected ", model_type,
                       "; another example may be for it");
  }
}

ConfigKeys::ConfigKeys(Json object, std::string source)
    : keys_(std::move(object)), source_(std::move(source)) {
  if (!keys_.is_object()) raise<ConfigError>(source_, ": expected a JSON object");
}

const Json* ConfigKeys::take(const char* key) {
  taken_.insert(key);
  const auto found = keys_.find(key);
  return found == keys_.end() || found->is_null() ? nullptr : &*found;
}

void ConfigKeys::raise_type(const char* key, const Json& value, const char* expected) const {
  raise<ConfigError>(source_, ": ", key, " is ", deepspeed::json_excerpt(value), ", expected ", expected);
}

std::optional<ConfigKeys> ConfigKeys::object(const char* key) {
  const Json* value = take(key);
  if (value == nullptr) return std::nullopt;
  return ConfigKeys(*value, source_ + ": " + key);
}

void ConfigKeys::only(const char* key, const Json& value, const char* advice) {
  const Json* found = take(key);
  if (found == nullptr || *found == value) return;
  raise<NotSupportedError>(source_, ": ", key, " is ", deepspeed::json_excerpt(*found),
                           ", which this model does not compute; expected ", value.dump(), advice);
}

Json ConfigKeys::others() const {
  Json others = Json::object();
  for (const auto& [key, value] : keys_.items()) {
    if (taken_.contains(key)) continue;
    if (std::ranges::find(kOfOthers, key) == kOfOthers.end()) {
      raise<NotSupportedError>(source_, ": this model does not know the key ", deepspeed::path_part(key),
                               "; leave it out where it changes nothing that the model computes");
    }
    others[key] = value;
  }
  return others;
}

void require_positive(const ConfigKeys& keys, const char* key, int64_t value) {
  if (value < 1) raise<ConfigError>(keys.source(), ": ", key, " is ", value, ", expected at least 1");
}

}  // namespace examples
