// The optimizers and schedules that the config can name, with the arguments in `params` of each. The
// factories of optim/ read these tables, and the help is written from them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/config/table/field.h"

namespace deepspeed::config {

/// Describes a type that `optimizer.type` or `scheduler.type` can name.
struct NamedType {
  std::string name;  // in the documentation's spelling
  std::string meaning;
  std::vector<Field> params;
  bool any_case = false;             // the name matches in any case
  bool needs_untested_flag = false;  // an optimizer that needs zero_allow_untested_optimizer from stage 1 on
  bool is_one_bit = false;           // an optimizer whose ranks exchange 1 bit per element
  int64_t last_stage = 3;            // the highest ZeRO stage that supports the optimizer
};

DEEPSPEED_API const std::vector<NamedType>& optimizer_types();
DEEPSPEED_API const std::vector<NamedType>& scheduler_types();

/// Returns the optimizer of that name if its ranks exchange 1 bit per element; otherwise null.
DEEPSPEED_API const NamedType* find_one_bit_optimizer(const std::string& type);

/// Finds a type by its name; null if there is none.
DEEPSPEED_API const NamedType* find_type(const std::vector<NamedType>& types, const std::string& name);

/// Lists the names in table order.
DEEPSPEED_API std::vector<std::string> type_names(const std::vector<NamedType>& types);

}  // namespace deepspeed::config
