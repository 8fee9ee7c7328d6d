// Makes a config in the order of Accelerate's plugin: arguments, then variables, then the config file, whose
// values win. What is "auto" is filled when a value is known: by launch, by the precision, by prepare().
#include "deepspeed/accelerate/plugin/deepspeed_plugin.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <sstream>
#include <utility>

#include "deepspeed/accelerate/plugin/python_text.h"
#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/text.h"
#include "deepspeed/config/table/coerce.h"

namespace deepspeed::accelerate {
namespace {

/// Links a field of the plugin to the config's key that has the same meaning.
struct Mapping {
  const char* field;
  const char* path;
};
constexpr Mapping kMappings[] = {
    {"gradient_accumulation_steps", "gradient_accumulation_steps"},
    {"gradient_clipping", "gradient_clipping"},
    {"zero_stage", "zero_optimization.stage"},
    {"offload_optimizer_device", "zero_optimization.offload_optimizer.device"},
    {"offload_param_device", "zero_optimization.offload_param.device"},
    {"offload_param_nvme_path", "zero_optimization.offload_param.nvme_path"},
    {"offload_optimizer_nvme_path", "zero_optimization.offload_optimizer.nvme_path"},
    {"zero3_save_16bit_model", "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
};

/// The keys of the YAML file that a config file would hide, in the order of Accelerate's message.
const std::vector<std::string> kHiddenByConfigFile = {
    "gradient_accumulation_steps", "gradient_clipping",      "zero_stage",
    "offload_optimizer_device",    "offload_param_device",   "offload_param_nvme_path",
    "offload_optimizer_nvme_path", "zero3_save_16bit_model", "mixed_precision"};

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

/// Returns a number that a variable holds, or raises a ConfigError that names it.
Json number_in(const char* variable, const std::string& text, bool whole) {
  if (whole) {
    if (const auto number = config::as_int(Json(text))) return *number;
  } else if (const auto number = config::as_float(Json(text))) {
    return *number;
  }
  raise<ConfigError>(variable, ": got ", json_excerpt(Json(text)), ", expected ",
                     whole ? "a whole number" : "a number");
}

Json steps_from_environment() {
  constexpr const char* kVariable = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS";
  const std::string text = env::get(kVariable).value_or("auto");
  return text == "auto" ? Json(text) : number_in(kVariable, text, true);
}

Json clipping_from_environment() {
  constexpr const char* kVariable = "ACCELERATE_GRADIENT_CLIPPING";
  const std::string text = env::get(kVariable).value_or("auto");
  return text == "auto" ? Json(text) : number_in(kVariable, text, false);
}

/// Returns a device's name as text, in the variable if it is not given.
std::string text_or(const std::optional<std::string>& given, const char* variable) {
  return given ? *given : env::get(variable).value_or("none");
}

bool flag_in(const char* variable, const std::string& text) {
  const auto flag = config::as_bool(Json(text));
  if (!flag) raise<ConfigError>(variable, ": got ", json_excerpt(Json(text)), ", expected true or false");
  return *flag;
}

/// Removes the values that are still "auto", with those of inner sections.
void drop_autos(Json& section) {
  for (auto entry = section.begin(); entry != section.end();) {
    if (entry->is_object()) drop_autos(*entry);
    entry = *entry == "auto" ? section.erase(entry) : std::next(entry);
  }
}

}  // namespace

DeepSpeedPlugin::DeepSpeedPlugin(DeepSpeedPluginArguments arguments)
    : hf_ds_config_(Json::object()), is_train_batch_min_(arguments.is_train_batch_min) {
  if (env::get("ACCELERATE_FP8_BACKEND") == "MSAMP")
    raise<NotSupportedError>(
        "ACCELERATE_FP8_BACKEND is MSAMP, which this version lacks: unset it, and take bf16");
  const auto& given = arguments;
  fields_["gradient_accumulation_steps"] =
      given.gradient_accumulation_steps ? Json(*given.gradient_accumulation_steps) : steps_from_environment();
  fields_["gradient_clipping"] =
      given.gradient_clipping ? Json(*given.gradient_clipping) : clipping_from_environment();
  constexpr const char* kStage = "ACCELERATE_DEEPSPEED_ZERO_STAGE";
  fields_["zero_stage"] =
      given.zero_stage ? Json(*given.zero_stage) : number_in(kStage, env::get(kStage).value_or("2"), true);
  fields_["offload_optimizer_device"] =
      text_or(given.offload_optimizer_device, "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE");
  fields_["offload_param_device"] =
      text_or(given.offload_param_device, "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE");
  fields_["offload_optimizer_nvme_path"] =
      text_or(given.offload_optimizer_nvme_path, "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH");
  fields_["offload_param_nvme_path"] =
      text_or(given.offload_param_nvme_path, "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH");
  fields_["zero3_save_16bit_model"] =
      given.zero3_save_16bit_model
          ? *given.zero3_save_16bit_model
          : lowercase(env::get("ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL").value_or("false")) == "true";
  if (const auto names = given.transformer_moe_cls_names
                             ? given.transformer_moe_cls_names
                             : env::get("ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES"))
    moe_layer_classes_ = split_at_commas(*names);

  const std::string file = env::get("ACCELERATE_DEEPSPEED_CONFIG_FILE").value_or("none");
  if (arguments.hf_ds_config) {
    hf_ds_config_ = *std::move(arguments.hf_ds_config);
    take_config_file();
  } else if (file != "none") {
    hf_ds_config_ = HfDeepSpeedConfig(file);
    take_config_file();
  } else {
    build_config();
  }
  hf_ds_config_.config["steps_per_print"] = std::numeric_limits<double>::infinity();

  constexpr const char* kInit = "ACCELERATE_DEEPSPEED_ZERO3_INIT";
  const bool is_zero3 = hf_ds_config_.is_zero3();
  zero3_init_flag_ = given.zero3_init_flag
                         ? *given.zero3_init_flag
                         : flag_in(kInit, env::get(kInit).value_or(is_zero3 ? "true" : "false"));
  if (zero3_init_flag_ && !is_zero3) {
    log::warning(
        "[accelerate] DeepSpeed Zero3 Init flag is only applicable for ZeRO Stage 3. Setting it to False.");
    zero3_init_flag_ = false;
  }
}

void DeepSpeedPlugin::check_fields_of_yaml() const {
  const auto from_yaml = split_at_commas(env::get("ACCELERATE_CONFIG_DS_FIELDS").value_or(""));
  const bool hidden = std::any_of(from_yaml.begin(), from_yaml.end(), [](const std::string& name) {
    return std::find(kHiddenByConfigFile.begin(), kHiddenByConfigFile.end(), name) !=
           kHiddenByConfigFile.end();
  });
  if (!hidden) return;
  raise<ConfigError>(
      "When using `deepspeed_config_file`, the following accelerate config variables will be ignored: ",
      python_repr(Json(kHiddenByConfigFile)), ".\n",
      "Please specify them appropriately in the DeepSpeed config file.\n"
      "If you are using an accelerate config file, remove others config variables mentioned in the above "
      "specified list.\n"
      "The easiest method is to create a new config following the questionnaire via `accelerate config`.\n"
      "It will only ask for the necessary config variables when using `deepspeed_config_file`.");
}

void DeepSpeedPlugin::take_config_file() {
  Json& config = hf_ds_config_.config;
  if (!config.contains("gradient_accumulation_steps")) config["gradient_accumulation_steps"] = 1;
  if (!config.contains("zero_optimization"))
    raise<ConfigError>("Please specify the ZeRO optimization config in the DeepSpeed config.");
  check_fields_of_yaml();
  AutoValues values = Json::object();
  for (const Mapping& mapping : kMappings) values[mapping.path] = fields_[mapping.field];
  for (const Mapping& mapping : kMappings) fill_match(mapping.path, values);
  take_fields();
}

DeepSpeedPlugin DeepSpeedPlugin::of_config(HfDeepSpeedConfig config) {
  DeepSpeedPlugin plugin(std::move(config), ConfigAlone());
  plugin.hf_ds_config_.config["steps_per_print"] = std::numeric_limits<double>::infinity();
  return plugin;
}

void DeepSpeedPlugin::take_fields() {
  for (const Mapping& mapping : kMappings) {
    const Json value = hf_ds_config_.get_value(mapping.path);
    if (!value.is_null() && value != "auto") fields_[mapping.field] = value;
  }
}

void DeepSpeedPlugin::build_config() {
  const auto offload = [this](const std::string& kind) {
    const Json& device = fields_["offload_" + kind + "_device"];
    return Json{{"device", device},
                {"nvme_path", device == "nvme" ? fields_["offload_" + kind + "_nvme_path"] : Json()}};
  };
  Json& config = hf_ds_config_.config;
  config = {{"train_batch_size", "auto"},
            {"train_micro_batch_size_per_gpu", "auto"},
            {"gradient_accumulation_steps", fields_["gradient_accumulation_steps"]},
            {"zero_optimization",
             {{"stage", fields_["zero_stage"]},
              {"offload_optimizer", offload("optimizer")},
              {"offload_param", offload("param")},
              {"stage3_gather_16bit_weights_on_model_save", fields_["zero3_save_16bit_model"]}}}};
  if (fields_["gradient_clipping"] != 0) config["gradient_clipping"] = fields_["gradient_clipping"];
}

void DeepSpeedPlugin::fill_match(const std::string& path, const AutoValues& values) {
  Json* value = hf_ds_config_.find(path);
  if (!value || *value != "auto") return;
  if (!values.contains(path)) {
    raise<ConfigError>(
        "`", path, "` not found in kwargs. Please specify `", path,
        "` without `auto` (set to correct value) in the DeepSpeed config file or pass it in kwargs.");
  }
  *value = values[path];
}

void DeepSpeedPlugin::process(Json& section, const std::string& prefix, const AutoValues& values,
                              std::vector<std::string>* mismatches) {
  for (auto& [key, value] : section.items()) {
    const std::string path = prefix + key;
    if (value.is_object()) {
      process(value, path + ".", values, mismatches);
    } else if (value == "auto") {
      fill_match(path, values);
    } else if (mismatches && !value.is_null() && values.contains(path) && value != values[path]) {
      mismatches->push_back("- ds " + path + "=" + python_str(value) + " vs arg " + path + "=" +
                            python_str(values[path]));
    }
  }
}

void DeepSpeedPlugin::deepspeed_config_process(const AutoValues& values, bool must_match) {
  std::vector<std::string> mismatches;
  process(hf_ds_config_.config, "", values, must_match ? &mismatches : nullptr);
  if (mismatches.empty()) return;
  std::string lines;
  for (const std::string& line : mismatches) lines += (lines.empty() ? "" : "\n") + line;
  raise<ConfigError>("Please correct the following DeepSpeed config values that mismatch kwargs  values:\n",
                     lines, "\nThe easiest method is to set these DeepSpeed config values to 'auto'.");
}

void DeepSpeedPlugin::set_mixed_precision(const std::string& mixed_precision) {
  if (mixed_precision == "fp8")
    raise<NotSupportedError>("mixed_precision is fp8, which this version lacks: use bf16");
  if (mixed_precision != "no" && mixed_precision != "fp16" && mixed_precision != "bf16") {
    raise<ConfigError>("Unknown mixed_precision mode: ", mixed_precision,
                       ". Choose between ['no', 'fp16', 'bf16', 'fp8'].");
  }
  Json& config = hf_ds_config_.config;
  if (mixed_precision == "fp16" && !config.contains("fp16"))
    config["fp16"] = {{"enabled", true}, {"auto_cast", true}};
  if (mixed_precision == "bf16" && !config.contains("bf16")) config["bf16"] = {{"enabled", true}};
  if (mixed_precision != "no") {
    const std::string other = mixed_precision == "fp16" ? "bf16" : "fp16";
    if (lowercase(python_str(get_value(other + ".enabled", "False"))) == "true") {
      raise<ConfigError>("`--mixed_precision` arg cannot be set to `", mixed_precision, "` when `", other,
                         "` is set in the DeepSpeed config file.");
    }
  }
  for (const char* dtype : {"fp16", "bf16"}) {
    if (!config.contains(dtype)) config[dtype] = {{"enabled", false}};
  }
  const AutoValues values = {{"fp16.enabled", mixed_precision == "fp16"},
                             {"bf16.enabled", mixed_precision == "bf16"}};
  fill_match("fp16.enabled", values);
  fill_match("bf16.enabled", values);
}

std::string DeepSpeedPlugin::mixed_precision() const {
  if (hf_ds_config_.is_true("fp16.enabled")) return "fp16";
  return hf_ds_config_.is_true("bf16.enabled") ? "bf16" : "no";
}

Json DeepSpeedPlugin::config_for_init() const {
  HfDeepSpeedConfig copy = hf_ds_config_;
  for (const char* key : {"gradient_accumulation_steps", "train_micro_batch_size_per_gpu"}) {
    if (copy.get_value(key, "auto") == "auto") copy.config[key] = 1;
  }
  drop_autos(copy.config);
  return copy.config;
}

}  // namespace deepspeed::accelerate
