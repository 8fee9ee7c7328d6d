#include "deepspeed/config/zero/tables.h"

namespace deepspeed::config {
namespace {

Option with_quantized_gradients() {
  return effective_where({"zero_optimization.zero_quantized_gradients"}, {true},
                         "only zero_quantized_gradients uses it");
}

}  // namespace

const Table<LocoConfig>& loco_table() {
  using C = LocoConfig;
  static const Table<C> table({
      entry("err_beta", &C::err_beta, "How much the earlier error counts in the one that is kept.",
            {between(0, 1), with_quantized_gradients()}),
      entry("reset_T", &C::reset_T, "Reductions after which errors are forgotten.",
            {above(0), with_quantized_gradients()}),
  });
  return table;
}

}  // namespace deepspeed::config
