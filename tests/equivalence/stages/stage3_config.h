// The config of the tests of stage 3 beside other stages.
#pragma once

#include "deepspeed/base/json.h"

namespace deepspeed::testing {

/// Returns the options of a stage. At stage 3 the larger parameters of OddNet are partitioned, the others
/// stay whole from their first use on.
inline Json at_stage(int stage, Json patch = Json::object()) {
  Json config = {{"zero_optimization", {{"stage", stage}, {"reduce_bucket_size", 200}}}};
  if (stage == 3) config["zero_optimization"]["stage3_param_persistence_threshold"] = 13;
  config.merge_patch(patch);
  return config;
}

inline Json zero_options(const Json& options) { return {{"zero_optimization", options}}; }

}  // namespace deepspeed::testing
