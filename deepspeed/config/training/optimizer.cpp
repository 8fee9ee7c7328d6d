#include "deepspeed/config/table/named_type.h"
#include "deepspeed/config/training/tables.h"

namespace deepspeed::config {
namespace {

std::string list(const std::vector<NamedType>& types) {
  std::string text;
  for (const std::string& name : type_names(types)) text += (text.empty() ? "" : ", ") + name;
  return text + ".";
}

}  // namespace

const Table<OptimizerConfig>& optimizer_table() {
  using C = OptimizerConfig;
  static const Table<C> table({
      entry("type", &C::type, ("The optimizer's name: " + list(optimizer_types())).c_str()),
      entry("params", &C::params, "The arguments of the optimizer; see the tables of the types."),
      entry("legacy_fusion", &C::legacy_fusion, "The former way of fusing the float16 step.",
            {without_effect("the step is fused in one way, with the same result")}),
  });
  return table;
}

const Table<SchedulerConfig>& scheduler_table() {
  using C = SchedulerConfig;
  static const Table<C> table({
      entry("type", &C::type, ("The schedule's name: " + list(scheduler_types())).c_str()),
      entry("params", &C::params, "The arguments of the schedule; see the tables of the types."),
  });
  return table;
}

}  // namespace deepspeed::config
