#include "deepspeed/launcher/machines/exports.h"

#include <algorithm>
#include <iterator>
#include <string>

namespace deepspeed::launcher {
namespace {

constexpr const char* kExported[] = {"MLFLOW",     "PYTHON", "MV2",   "UCX",         "NCCL",
                                     "DEEPSPEED_", "DS_",    "GLOO_", "ACCELERATE_", "PARALLELISM_CONFIG_"};
// Only the launcher uses these.
constexpr const char* kNotExported[] = {"DS_ENV_FILE", "DEEPSPEED_PROGRAMS", "DS_NODE_PROGRAM",
                                        "DS_LINK_TIMEOUT"};
// If this variable is set, each machine has its own NCCL_IB_HCA and UCX_NET_DEVICES.
constexpr const char* kOwnInterfaces = "AISC_JOB_NAME";

bool is_exported(const std::string& name, bool own_interfaces) {
  if (own_interfaces && (name == "NCCL_IB_HCA" || name == "UCX_NET_DEVICES")) return false;
  if (std::find(std::begin(kNotExported), std::end(kNotExported), name) != std::end(kNotExported))
    return false;
  return std::any_of(std::begin(kExported), std::end(kExported),
                     [&](const char* beginning) { return name.starts_with(beginning); });
}

}  // namespace

Environment exports_of(const Environment& own, const Environment& of_files, const std::string& folder) {
  Environment exports;
  for (const auto& [name, value] : own) {
    if (is_exported(name, own.contains(kOwnInterfaces))) exports[name] = value;
  }
  const auto path = exports.find("PYTHONPATH");
  exports["PYTHONPATH"] =
      path == exports.end() || path->second.empty() ? folder : folder + ":" + path->second;
  for (const auto& [name, value] : of_files) exports[name] = value;
  return exports;
}

}  // namespace deepspeed::launcher
