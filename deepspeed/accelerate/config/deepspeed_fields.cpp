#include "deepspeed/accelerate/config/deepspeed_fields.h"

#include <algorithm>

#include "deepspeed/base/message.h"
#include "deepspeed/base/text.h"
#include "deepspeed/config/table/coerce.h"

namespace deepspeed::accelerate {

const std::vector<DeepSpeedField>& deepspeed_fields() {
  using enum ValueKind;
  const std::vector<std::string> devices = {"none", "cpu", "nvme"};
  static const std::vector<DeepSpeedField> fields = {
      {"deepspeed_config_file",
       kText,
       {},
       "ACCELERATE_DEEPSPEED_CONFIG_FILE",
       false,
       "the DeepSpeed config, a JSON file"},
      {"zero_stage",
       kInt,
       {"0", "1", "2", "3"},
       "ACCELERATE_DEEPSPEED_ZERO_STAGE",
       false,
       "ZeRO stage, 0 to 3 (2)"},
      {"offload_optimizer_device", kText, devices, "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", true,
       "where optimizer states are kept: none, cpu or nvme (none)"},
      {"offload_param_device", kText, devices, "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", true,
       "where parameters are kept at stage 3: none, cpu or nvme (none)"},
      {"offload_optimizer_nvme_path",
       kText,
       {},
       "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH",
       false,
       "the folder for optimizer states on a disk"},
      {"offload_param_nvme_path",
       kText,
       {},
       "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH",
       false,
       "the folder for parameters on a disk"},
      {"gradient_accumulation_steps",
       kIntOrAuto,
       {},
       "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
       false,
       "micro batches of a step (the Accelerator's)"},
      {"gradient_clipping",
       kFloatOrAuto,
       {},
       "ACCELERATE_GRADIENT_CLIPPING",
       true,
       "the largest norm of the gradients (1.0)"},
      {"zero3_init_flag",
       kBool,
       {},
       "ACCELERATE_DEEPSPEED_ZERO3_INIT",
       true,
       "whether models are constructed under zero::Init (true at stage 3)"},
      {"zero3_save_16bit_model",
       kBool,
       {},
       "ACCELERATE_DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
       true,
       "whether stage 3 may save whole 16-bit weights (false)"},
      {"deepspeed_hostfile", kText, {}, nullptr, false, "the hostfile of several machines"},
      {"deepspeed_exclusion_filter", kText, {}, nullptr, false, "the machines and slots to leave out"},
      {"deepspeed_inclusion_filter", kText, {}, nullptr, false, "the machines and slots to use"},
      {"deepspeed_multinode_launcher",
       kText,
       {"pdsh", "standard", "openmpi", "mvapich", "mpich", "nossh", "slurm"},
       nullptr,
       false,
       "what starts the program on several machines (pdsh)"},
      {"deepspeed_moe_layer_cls_names",
       kText,
       {},
       "ACCELERATE_DEEPSPEED_MOE_LAYER_CLS_NAMES",
       false,
       "classes of mixture-of-experts layers, separated by commas"},
  };
  return fields;
}

namespace {

/// Returns "expected one of ..." for a text that is none of the choices, if there are any.
std::optional<std::string> unless_chosen(const std::string& text, const std::vector<std::string>& choices) {
  if (choices.empty() || std::find(choices.begin(), choices.end(), text) != choices.end()) return {};
  std::string list;
  for (const std::string& choice : choices) list += (list.empty() ? "" : ", ") + choice;
  return "expected one of " + list;
}

}  // namespace

std::optional<std::string> fault_of(const Json& value, ValueKind kind,
                                    const std::vector<std::string>& choices) {
  using enum ValueKind;
  const auto unless = [](bool fits, const char* expected) {
    return fits ? std::optional<std::string>() : std::string("expected ") + expected;
  };
  const bool is_auto = value == "auto";
  switch (kind) {
    case kBool:
      return unless(config::as_bool(value).has_value(), "true or false");
    case kInt: {
      const auto number = config::as_int(value);
      return number ? unless_chosen(std::to_string(*number), choices) : unless(false, "a whole number");
    }
    case kIntOrAuto:
      return unless(is_auto || config::as_int(value).has_value(), "a whole number or \"auto\"");
    case kFloatOrAuto:
      return unless(is_auto || config::as_float(value).has_value(), "a number or \"auto\"");
    case kMap:
      return unless(value.is_object(), "a map");
    case kList:
      return unless(value.is_array(), "a list");
    case kText: {
      if (!value.is_string()) return "expected a text";
      return unless_chosen(lowercase(value.get<std::string>()), choices);
    }
    case kAny:
      return {};
  }
  return {};
}

}  // namespace deepspeed::accelerate
