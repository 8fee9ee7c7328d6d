#include "deepspeed/launcher/plan/resource_filter.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/numbers.h"

namespace deepspeed::launcher {
namespace {

/// Parses a node spec. A whole host has no slots in the result.
HostSlots parse_node_spec(const std::string& spec, const std::string& flag) {
  const auto bad = [&](const std::string& what) {
    raise<UsageError>(flag, ": ", what, " in '", spec, "', expected NAME[:SLOT[,SLOT...]]");
  };
  const auto parts = split(spec, ':');
  if (parts[0].empty() || parts[0].find_first_of(" \t") != std::string::npos) bad("no host name");
  if (parts.size() > 2) bad("more than one ':'");
  HostSlots node{parts[0], {}};
  if (parts.size() == 1) return node;
  for (const std::string& part : split(parts[1], ',')) {
    const auto slot = parse_whole_number(part);
    if (!slot) bad("'" + part + "' is no slot number");
    node.slots.push_back(*slot);
  }
  return node;
}

template <class Pool>
auto find_host(Pool& pool, const std::string& host) {
  return std::find_if(pool.begin(), pool.end(), [&](const HostSlots& node) { return node.host == host; });
}

void check_hosts_exist(const ResourcePool& pool, const ResourcePool& specs, const std::string& flag) {
  for (const HostSlots& spec : specs) {
    if (find_host(pool, spec.host) != pool.end()) continue;
    std::vector<std::string> known;
    for (const HostSlots& node : pool) known.push_back(node.host);
    raise<UsageError>(flag, ": hostname '", spec.host, "' not found, expected one of: ", join(known, ", "));
  }
}

void check_slots_exist(const HostSlots& node, const std::vector<int>& named, const char* flag) {
  for (const int slot : named) {
    if (std::find(node.slots.begin(), node.slots.end(), slot) != node.slots.end()) continue;
    raise<UsageError>(flag, ": no slot ", slot, " on host '", node.host, "', which has ",
                      node.slots.empty() ? "none" : join(node.slots, ","));
  }
}

std::vector<int> without(const HostSlots& node, const std::vector<int>& excluded) {
  check_slots_exist(node, excluded, "--exclude");
  std::vector<int> left;
  std::copy_if(node.slots.begin(), node.slots.end(), std::back_inserter(left),
               [&](int slot) { return std::find(excluded.begin(), excluded.end(), slot) == excluded.end(); });
  return left;
}

}  // namespace

ResourcePool parse_node_specs(const std::string& text, const std::string& flag) {
  ResourcePool specs;
  for (const std::string& part : split(text, '@')) {
    HostSlots spec = parse_node_spec(part, flag);
    const auto known = find_host(specs, spec.host);
    if (known == specs.end()) {
      specs.push_back(spec);
    } else if (known->slots.empty() || spec.slots.empty()) {
      known->slots.clear();  // the whole host includes each of its slots
    } else {
      known->slots.insert(known->slots.end(), spec.slots.begin(), spec.slots.end());
    }
  }
  for (HostSlots& spec : specs) {
    std::sort(spec.slots.begin(), spec.slots.end());
    spec.slots.erase(std::unique(spec.slots.begin(), spec.slots.end()), spec.slots.end());
  }
  return specs;
}

ResourcePool include_resources(const ResourcePool& pool, const std::string& text) {
  const ResourcePool specs = parse_node_specs(text, "--include");
  check_hosts_exist(pool, specs, "--include");
  ResourcePool kept;
  for (const HostSlots& node : pool) {
    const auto spec = find_host(specs, node.host);
    if (spec == specs.end()) continue;
    check_slots_exist(node, spec->slots, "--include");
    HostSlots taken{node.host, spec->slots.empty() ? node.slots : spec->slots};
    if (!taken.slots.empty()) kept.push_back(taken);
  }
  return kept;
}

ResourcePool exclude_resources(const ResourcePool& pool, const std::string& text) {
  const ResourcePool specs = parse_node_specs(text, "--exclude");
  check_hosts_exist(pool, specs, "--exclude");
  ResourcePool kept;
  for (const HostSlots& node : pool) {
    const auto spec = find_host(specs, node.host);
    HostSlots left = node;
    if (spec != specs.end())
      left.slots = spec->slots.empty() ? std::vector<int>{} : without(node, spec->slots);
    if (!left.slots.empty()) kept.push_back(left);
  }
  return kept;
}

}  // namespace deepspeed::launcher
