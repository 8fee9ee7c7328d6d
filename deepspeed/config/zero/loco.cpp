#include "deepspeed/config/zero/tables.h"

namespace deepspeed::config {

const Table<LocoConfig>& loco_table() {
  using C = LocoConfig;
  static const Table<C> table({
      entry("err_beta", &C::err_beta, "How much the earlier error counts in the one that is kept.",
            {between(0, 1)}),
      entry("reset_T", &C::reset_T, "Reductions after which errors are forgotten.", {at_least(1)}),
  });
  return table;
}

}  // namespace deepspeed::config
