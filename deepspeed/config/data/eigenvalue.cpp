#include "deepspeed/config/data/tables.h"

namespace deepspeed::config {

const Table<EigenvalueConfig>& eigenvalue_table() {
  using C = EigenvalueConfig;
  static const Table<C> table({
      entry("enabled", &C::enabled, "Turns the section on.", {not_yet()}),
      entry("verbose", &C::verbose, "Log each one."),
      entry("max_iter", &C::max_iter, "The most iterations."),
      entry("tol", &C::tol, "The change that ends them."),
      entry("stability", &C::stability, "Added to a divisor."),
      entry("gas_boundary_resolution", &C::gas_boundary_resolution, "Steps between two computations."),
      entry("layer_name", &C::layer_name, "The name of the layers."),
      entry("layer_num", &C::layer_num, "How many there are."),
  });
  return table;
}

}  // namespace deepspeed::config
