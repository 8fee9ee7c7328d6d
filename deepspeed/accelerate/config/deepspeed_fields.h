// The keys of `deepspeed_config` in Accelerate's YAML file. Each is a flag of `launch` too, and most become a
// variable that DeepSpeedPlugin reads. One table says all of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::accelerate {

/// Names what values a key takes.
enum class ValueKind { kBool, kInt, kIntOrAuto, kFloatOrAuto, kText, kMap, kList, kAny };

/// Describes one key of `deepspeed_config`.
struct DeepSpeedField {
  const char* key;
  ValueKind kind;
  std::vector<std::string> choices;  ///< of a text; empty: any
  const char* variable;              ///< that `launch` sets; null: none, `launch` itself uses the value
  bool lowered;                      ///< the variable holds the value in lower case
  const char* help;
};

/// Lists the keys in the order of Accelerate's help.
DEEPSPEED_API const std::vector<DeepSpeedField>& deepspeed_fields();

/// Returns what is wrong with a value, as "expected ...", or nothing.
std::optional<std::string> fault_of(const Json& value, ValueKind kind,
                                    const std::vector<std::string>& choices);

}  // namespace deepspeed::accelerate
