// DeepSpeedPlugin makes a DeepSpeed config from arguments, from the variables that `accelerate launch` sets,
// and from a config file, in the order in which Accelerate lets one win over the other.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deepspeed/accelerate/plugin/hf_config.h"
#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::accelerate {

/// Holds DeepSpeedPlugin's arguments. One that is not given comes from its variable, else is the default.
struct DeepSpeedPluginArguments {
  /// The config. Its variable is ACCELERATE_DEEPSPEED_CONFIG_FILE. Without one the other arguments make it.
  std::optional<HfDeepSpeedConfig> hf_ds_config = {};
  /// ACCELERATE_GRADIENT_ACCUMULATION_STEPS, else "auto": the Accelerator's.
  std::optional<int> gradient_accumulation_steps = {};
  /// ACCELERATE_GRADIENT_CLIPPING, else "auto", which becomes 1.0. 0 turns clipping off.
  std::optional<double> gradient_clipping = {};
  std::optional<int> zero_stage = {};  ///< ACCELERATE_DEEPSPEED_ZERO_STAGE, else 2
  bool is_train_batch_min = true;      ///< "auto" takes the smallest loader's batch size
  std::optional<std::string> offload_optimizer_device =
      {};                                                ///< ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE
  std::optional<std::string> offload_param_device = {};  ///< ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE
  std::optional<std::string> offload_optimizer_nvme_path =
      {};  ///< ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH
  std::optional<std::string> offload_param_nvme_path = {};  ///< ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH
  std::optional<bool> zero3_init_flag = {};  ///< ACCELERATE_DEEPSPEED_ZERO3_INIT, else whether the stage is 3
  std::optional<bool> zero3_save_16bit_model =
      {};  ///< ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL, else false
  /// Names of module classes, separated by commas. ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES.
  std::optional<std::string> transformer_moe_cls_names = {};
};

/// Holds a value for each dotted path of a config that may be "auto".
using AutoValues = Json;

/// Holds the config of one engine, whose "auto" values are filled until it is used.
class DEEPSPEED_API DeepSpeedPlugin {
 public:
  /// Makes the config. Throws ConfigError, with Accelerate's words, for a config without `zero_optimization`,
  /// one beside values of the YAML file that it would hide, and a variable with another kind of value. Throws
  /// NotSupportedError for MS-AMP.
  explicit DeepSpeedPlugin(DeepSpeedPluginArguments arguments = {});
  /// Makes a plugin of a config alone, whatever the variables say.
  static DeepSpeedPlugin of_config(HfDeepSpeedConfig config);

  /// The config with what has been filled so far.
  const Json& deepspeed_config() const { return hf_ds_config_.config; }
  HfDeepSpeedConfig& hf_ds_config() { return hf_ds_config_; }
  const HfDeepSpeedConfig& hf_ds_config() const { return hf_ds_config_; }

  /// The fields, as the config has them where it says more than "auto".
  const Json& gradient_accumulation_steps() const { return fields_["gradient_accumulation_steps"]; }
  const Json& gradient_clipping() const { return fields_["gradient_clipping"]; }
  const Json& zero_stage() const { return fields_["zero_stage"]; }
  const Json& offload_optimizer_device() const { return fields_["offload_optimizer_device"]; }
  const Json& offload_param_device() const { return fields_["offload_param_device"]; }
  const Json& zero3_save_16bit_model() const { return fields_["zero3_save_16bit_model"]; }
  bool is_train_batch_min() const { return is_train_batch_min_; }
  bool is_zero3_init_enabled() const { return zero3_init_flag_; }
  /// The names in `transformer_moe_cls_names`.
  const std::vector<std::string>& moe_layer_classes() const { return moe_layer_classes_; }

  bool is_auto(const std::string& path) const { return hf_ds_config_.is_auto(path); }
  Json get_value(const std::string& path, const Json& otherwise = nullptr) const {
    return hf_ds_config_.get_value(path, otherwise);
  }

  /// Sets the value at `path` if it is "auto". Without a value for it, throws ConfigError.
  void fill_match(const std::string& path, const AutoValues& values);
  /// Fills every "auto" of the config. Throws ConfigError for one without a value. If `must_match`, values
  /// that are given and differ are collected into one ConfigError.
  void deepspeed_config_process(const AutoValues& values, bool must_match = true);
  /// Turns on the section of a precision: "no", "fp16" or "bf16". Throws ConfigError if the config has turned
  /// on the other one, and NotSupportedError for "fp8".
  void set_mixed_precision(const std::string& mixed_precision);
  /// Returns "fp16", "bf16" or "no", as the config says.
  std::string mixed_precision() const;
  /// Returns the config for zero::Init. Micro batch and accumulation steps that are "auto" become 1, and other
  /// values that are still "auto" are left out.
  Json config_for_init() const;

 private:
  struct ConfigAlone {};
  DeepSpeedPlugin(HfDeepSpeedConfig config, ConfigAlone) : hf_ds_config_(std::move(config)) { take_fields(); }
  void check_fields_of_yaml() const;
  /// Sets the fields that the config has values for.
  void take_fields();
  void take_config_file();
  void build_config();
  void process(Json& section, const std::string& prefix, const AutoValues& values,
               std::vector<std::string>* mismatches);

  HfDeepSpeedConfig hf_ds_config_;
  Json fields_ = Json::object();
  bool is_train_batch_min_ = true;
  bool zero3_init_flag_ = false;
  std::vector<std::string> moe_layer_classes_;
};

}  // namespace deepspeed::accelerate
