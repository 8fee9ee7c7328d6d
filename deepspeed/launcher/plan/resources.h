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
  ResourcePool nodes;                 ///< this machine alone
  std::vector<std::string> devices;   ///< a device a rank for CUDA_VISIBLE_DEVICES; empty on the CPU
  std::vector<std::string> warnings;  ///< for the user: what was ignored
};

/// Decides how many ranks run on this machine alone, and on which devices. Without flags: one rank a visible
/// GPU, else one on the CPU. `hostfile` is nothing where there is none, and `cuda_visible_devices` where the
/// variable is unset (empty means: no GPU). As in DeepSpeed, --include, --exclude and a hostfile count the
/// machine's GPUs and ignore CUDA_VISIBLE_DEVICES; other than there, --num_gpus and --num_procs choose among
/// the visible ones. Throws UsageError where GPUs are missing, or where the hosts are more than this machine.
Resources resolve_resources(const LaunchArgs& args, const std::optional<ResourcePool>& hostfile,
                            const Machine& machine, const std::optional<std::string>& cuda_visible_devices);

/// Returns the hosts and slots of a job: those of `pool` that the filter, --num_nodes and the number of ranks
/// leave. Throws UsageError, naming the flag, where nothing is left, or fewer machines than were asked for.
ResourcePool choose_nodes(const LaunchArgs& args, const ResourcePool& pool);

/// Returns the devices of a host's slots, which count the machine's GPUs from 0; none without GPUs, where
/// slots only count ranks. Throws UsageError for a slot that the machine does not have.
std::vector<std::string> devices_of(const HostSlots& node, const Machine& machine);

/// Returns the slots of this machine where no hostfile says them: its GPUs. Without GPUs there are as many as
/// a filter names, or one.
ResourcePool local_pool(const LaunchArgs& args, const Machine& machine);

}  // namespace deepspeed::launcher
