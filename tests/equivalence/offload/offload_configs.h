// Configs with the optimizer in host memory or on a disk, cut small enough that tiny models have many slices.
#pragma once

#include <filesystem>
#include <string>

#include "deepspeed/base/json.h"

namespace deepspeed::testing {

/// Many slices, and at stage 3 few parameters that stay whole.
inline Json sliced_at_stage(int stage, Json patch = Json::object()) {
  Json config = {{"zero_optimization",
                  {{"stage", stage},
                   {"reduce_bucket_size", 200},
                   {"sub_group_size", 20},
                   {"stage3_param_persistence_threshold", 13}}},
                 {"log_level", "error"}};
  config.merge_patch(patch);
  return config;
}

inline Json on_cpu(Json config) {
  config["zero_optimization"]["offload_optimizer"] = {{"device", "cpu"}};
  return config;
}

/// `variant`: which of the two pipelines are on.
inline Json on_disk(Json config, const std::filesystem::path& folder, int variant = 0) {
  config["zero_optimization"]["offload_optimizer"] = {{"device", "nvme"},
                                                      {"nvme_path", folder.string()},
                                                      {"pipeline_read", variant % 2 == 1},
                                                      {"pipeline_write", variant / 2 == 1}};
  config["aio"] = {{"block_size", 4096}, {"queue_depth", 4}};
  return config;
}

inline Json in_precision(const std::string& precision) {
  if (precision == "fp32") return Json::object();
  Json patch = {{precision, {{"enabled", true}}}};
  if (precision == "fp16") patch["fp16"]["initial_scale_power"] = 20;  // the first steps overflow
  return patch;
}

}  // namespace deepspeed::testing
