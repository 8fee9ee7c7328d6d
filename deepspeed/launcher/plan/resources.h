// Derives the hosts, slots and devices of a run from flags, hostfile and machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/plan/hostfile.h"
#include "deepspeed/launcher/plan/machine.h"

namespace deepspeed::launcher {

struct Resources {
  ResourcePool nodes;                 ///< only this machine
  std::vector<std::string> devices;   ///< for CUDA_VISIBLE_DEVICES, one for each rank; empty on the CPU
  std::vector<std::string> warnings;  ///< tell the user what was ignored
};

/// Decides how many ranks run on this machine, and on which devices. Without flags that is one for each
/// visible GPU, or one on the CPU. `hostfile` is unset if there is none, and `cuda_visible_devices` if the
/// variable is unset; empty means no GPU. As in DeepSpeed, --include, --exclude and a hostfile count the
/// machine's GPUs and ignore CUDA_VISIBLE_DEVICES. Unlike in DeepSpeed, --num_gpus and --num_procs choose
/// among the visible ones. Throws UsageError if GPUs are missing, or if the hosts are not only this machine.
Resources resolve_resources(const LaunchArgs& args, const std::optional<ResourcePool>& hostfile,
                            const Machine& machine, const std::optional<std::string>& cuda_visible_devices);

/// Returns the hosts and slots of a job. It applies --include, --exclude, --num_nodes and the number of ranks
/// to `pool`. Throws UsageError, naming the flag, if nothing is left or more machines were asked for.
ResourcePool choose_nodes(const LaunchArgs& args, const ResourcePool& pool);

/// Returns the devices of a host's slots, which number the machine's GPUs from 0. Without GPUs it returns
/// none, because slots then only count ranks. Throws UsageError for a slot that the machine does not have.
std::vector<std::string> devices_of(const HostSlots& node, const Machine& machine);

/// Returns the slots of this machine if there is no hostfile: its GPUs. Without GPUs it has the slots that
/// --include names, or one.
ResourcePool local_pool(const LaunchArgs& args, const Machine& machine);

}  // namespace deepspeed::launcher
