// The section eigenvalue.
#pragma once

#include <cstdint>
#include <string>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// The greatest eigenvalue of each layer's Hessian.
struct EigenvalueConfig {
  bool enabled = false;
  bool verbose = false;
  int64_t max_iter = 100;
  double tol = 1e-2;
  double stability = 1e-6;
  int64_t gas_boundary_resolution = 1;
  std::string layer_name = "bert.encoder.layer";
  int64_t layer_num = 0;
};

const Table<EigenvalueConfig>& eigenvalue_table();

}  // namespace deepspeed::config
