#include "deepspeed/engine/config_getters.h"

#include "deepspeed/base/text.h"
#include "deepspeed/config/table/named_type.h"

namespace deepspeed {

std::optional<std::string> ConfigGetters::optimizer_name() const {
  if (client_optimizer_) return client_optimizer_;
  const auto given = name_of(config_.optimizer);
  if (!given) return given;
  const config::NamedType* type = config::find_type(config::optimizer_types(), *given);
  return type != nullptr && type->any_case ? lowercase(*given) : *given;
}

}  // namespace deepspeed
