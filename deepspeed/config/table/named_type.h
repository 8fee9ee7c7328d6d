// The optimizers and schedules that the config names, with the arguments that `params` takes for each. The
// factories of optim/ read these tables, and the help is written from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/config/table/field.h"

namespace deepspeed::config {

/// A type that `optimizer.type` or `scheduler.type` can name.
struct NamedType {
  std::string name;  // as the documentation spells it
  std::string meaning;
  std::vector<Field> params;
  bool any_case = false;             // the name is read in any case
  bool needs_untested_flag = false;  // an optimizer that wants zero_allow_untested_optimizer from stage 1 on
  bool is_one_bit = false;           // an optimizer whose ranks exchange 1 bit an element
  int64_t last_stage = 3;            // of ZeRO that the optimizer has
};

DEEPSPEED_API const std::vector<NamedType>& optimizer_types();
DEEPSPEED_API const std::vector<NamedType>& scheduler_types();

/// Finds the optimizer of that type, where it is one whose ranks exchange 1 bit an element; else null.
DEEPSPEED_API const NamedType* find_one_bit_optimizer(const std::string& type);

/// Finds a type by its name; null where there is none.
DEEPSPEED_API const NamedType* find_type(const std::vector<NamedType>& types, const std::string& name);

/// Lists the names, in the order of the table.
DEEPSPEED_API std::vector<std::string> type_names(const std::vector<NamedType>& types);

/// Reads the values of all parameters of the type: as given, in canonical form, else the default. null counts
/// as absent. `path` names the object in errors: "optimizer.params". Throws ConfigError as read_section()
/// does, and where `given` is neither an object nor null or a required parameter is missing.
DEEPSPEED_API Json read_params(const NamedType& type, const Json& given, const std::string& path);
/// Reads the parameters as read_params() does, but logs nothing about values that do not act.
DEEPSPEED_API Json resolve_params(const NamedType& type, const Json& given, const std::string& path);

}  // namespace deepspeed::config
