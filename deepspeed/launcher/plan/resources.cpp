#include "deepspeed/launcher/plan/resources.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/plan/resource_filter.h"

namespace deepspeed::launcher {
namespace {

std::vector<std::string> names(const std::vector<int>& slots) {
  std::vector<std::string> texts;
  for (const int slot : slots) texts.push_back(std::to_string(slot));
  return texts;
}

/// Lists the entries of CUDA_VISIBLE_DEVICES, or all GPUs if it is unset. It stops at the first that names no
/// device, such as -1.
std::vector<std::string> visible_devices(const Machine& machine, const std::optional<std::string>& variable) {
  if (!variable) return names(first_slots(machine.num_gpus));
  std::vector<std::string> devices;
  for (const std::string& entry : split(*variable, ',')) {
    const bool named = parse_whole_number(entry) || entry.starts_with("GPU-") || entry.starts_with("MIG-");
    if (!named) break;
    devices.push_back(entry);
  }
  return devices;
}

/// Resolves a launch without hostfile and filter. Each rank gets one of the first visible devices, or the CPU
/// if there is none.
Resources local_ranks(const LaunchArgs& args, std::vector<std::string> devices) {
  const int num_visible = static_cast<int>(devices.size());
  const int num_ranks = args.num_ranks.value_or(std::max(1, num_visible));
  if (num_visible > 0 && num_ranks > num_visible) {
    raise<UsageError>(num_ranks, " ranks, but ", num_visible, " visible GPUs (", join(devices, ","),
                      "); start fewer ranks, or set CUDA_VISIBLE_DEVICES= (empty) to run on the CPU");
  }
  if (num_visible > 0) devices.resize(static_cast<size_t>(num_ranks));
  return {{{"localhost", first_slots(num_ranks)}}, devices, {}};
}

ResourcePool filter(const ResourcePool& pool, const LaunchArgs& args) {
  const bool includes = !args.include.empty();
  if (includes || !args.exclude.empty()) {
    ResourcePool left =
        includes ? include_resources(pool, args.include) : exclude_resources(pool, args.exclude);
    if (left.empty()) {
      raise<UsageError>(includes ? "--include '" + args.include : "--exclude '" + args.exclude,
                        "' leaves no slot to run on");
    }
    return left;
  }
  ResourcePool used;
  std::copy_if(pool.begin(), pool.end(), std::back_inserter(used),
               [](const HostSlots& node) { return !node.slots.empty(); });
  if (used.empty()) raise<UsageError>("the hostfile gives every host slots=0, expected at least one slot");
  return used;
}

void check_is_this_machine(const ResourcePool& nodes, const Machine& machine) {
  for (const HostSlots& node : nodes) {
    if (machine.is_this(node.host) || nodes.size() == 1) continue;
    raise<UsageError>("host '", node.host, "' is not this machine; choose this one with --include");
  }
  if (nodes.size() > 1) {
    raise<UsageError>("the hosts '", nodes[0].host, "' and '", nodes[1].host,
                      "' are both this machine; write one line with all slots in the hostfile");
  }
}

}  // namespace

std::vector<std::string> devices_of(const HostSlots& node, const Machine& machine) {
  if (machine.num_gpus == 0) return {};
  const int last = *std::max_element(node.slots.begin(), node.slots.end());
  if (last >= machine.num_gpus) {
    raise<UsageError>("slot ", last, " of host '", node.host, "', but this machine has ", machine.num_gpus,
                      " GPUs (slots 0 to ", machine.num_gpus - 1, ")");
  }
  return names(node.slots);
}

ResourcePool local_pool(const LaunchArgs& args, const Machine& machine) {
  if (machine.num_gpus > 0) return {{"localhost", first_slots(machine.num_gpus)}};
  if (!args.include.empty()) {
    for (const HostSlots& named : parse_node_specs(args.include, "--include")) {
      if (named.host == "localhost" && !named.slots.empty()) return {named};
    }
  }
  return {{"localhost", {0}}};
}

ResourcePool choose_nodes(const LaunchArgs& args, const ResourcePool& pool) {
  ResourcePool nodes = filter(pool, args);
  if (args.num_nodes && static_cast<size_t>(*args.num_nodes) > nodes.size()) {
    raise<UsageError>("--num_nodes is ", *args.num_nodes, ", but the hostfile has ", nodes.size(),
                      nodes.size() == 1 ? " host" : " hosts", "; add lines 'HOST slots=N' (--hostfile)");
  }
  if (args.num_nodes) nodes.resize(static_cast<size_t>(*args.num_nodes));
  if (args.num_ranks) {
    for (HostSlots& node : nodes) node.slots = first_slots(*args.num_ranks);
  }
  return nodes;
}

Resources resolve_resources(const LaunchArgs& args, const std::optional<ResourcePool>& hostfile,
                            const Machine& machine, const std::optional<std::string>& cuda_visible_devices) {
  const bool filtered = !args.include.empty() || !args.exclude.empty();
  if (!hostfile && !filtered) return local_ranks(args, visible_devices(machine, cuda_visible_devices));
  Resources resources;
  resources.nodes = choose_nodes(args, hostfile ? *hostfile : local_pool(args, machine));
  check_is_this_machine(resources.nodes, machine);
  const HostSlots& node = resources.nodes.front();
  resources.devices = devices_of(node, machine);
  if (cuda_visible_devices && !resources.devices.empty()) {
    resources.warnings.push_back("CUDA_VISIBLE_DEVICES=" + *cuda_visible_devices +
                                 " is ignored: the hostfile or the filter says which GPUs are used");
  }
  return resources;
}

}  // namespace deepspeed::launcher
