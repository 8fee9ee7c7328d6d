// The section zero_optimization.leaf_module.
#pragma once

#include <string>
#include <vector>

#include "deepspeed/config/table/table.h"

namespace deepspeed::config {

/// Options of modules that stage 3 gathers as one.
struct LeafModuleConfig {
  std::vector<std::string> classes;
  std::vector<std::string> names;
  std::vector<std::string> name_suffixes;
};

const Table<LeafModuleConfig>& leaf_module_table();

}  // namespace deepspeed::config
