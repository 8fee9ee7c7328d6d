// From flags, hostfile and machine to the hosts, slots and devices of a run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/plan/hostfile.h"
#include "deepspeed/launcher/plan/machine.h"

namespace deepspeed::launcher {

struct Resources {
  ResourcePool nodes;                 ///< this machine alone, in this version
  std::vector<std::string> devices;   ///< a device a rank for CUDA_VISIBLE_DEVICES; empty on the CPU
  std::vector<std::string> warnings;  ///< for the user: what was ignored
};

/// Decides how many ranks run, and on which devices. Without flags: one rank a visible GPU, else one on the
/// CPU. `hostfile` is nothing where there is none, and `cuda_visible_devices` where the variable is unset
/// (empty means: no GPU). As in DeepSpeed, --include, --exclude and a hostfile count the machine's GPUs and
/// ignore CUDA_VISIBLE_DEVICES; other than there, --num_gpus and --num_procs choose among the visible ones.
/// Throws UsageError where GPUs are missing, NotSupportedError for another machine.
Resources resolve_resources(const LaunchArgs& args, const std::optional<ResourcePool>& hostfile,
                            const Machine& machine, const std::optional<std::string>& cuda_visible_devices);

}  // namespace deepspeed::launcher
