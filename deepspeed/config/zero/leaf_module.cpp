#include "deepspeed/config/zero/tables.h"

namespace deepspeed::config {
namespace {

/// Makes a list of a name that stands alone.
Json list_of_one(const Json& given) { return given.is_string() ? Json::array({given}) : given; }

}  // namespace

const Table<LeafModuleConfig>& leaf_module_table() {
  using C = LeafModuleConfig;
  static const Table<C> table({
      entry("classes", &C::classes, "Their classes, by full name.",
            {normalized_by(list_of_one), effective_at_stage(3)}),
      entry("names", &C::names, "Their names in the model.",
            {normalized_by(list_of_one), effective_at_stage(3)}),
      entry("name_suffixes", &C::name_suffixes, "Ends of their names.",
            {normalized_by(list_of_one), effective_at_stage(3)}),
  });
  return table;
}

}  // namespace deepspeed::config
