#include "deepspeed/launcher/machines/part.h"

#include <algorithm>

#include "deepspeed/base/message.h"
#include "deepspeed/base/version.h"

namespace deepspeed::launcher {
namespace {

bool is_loopback(const std::string& address) {
  return address.empty() || address.starts_with("127.") || address == "::1";
}

/// Returns the address that the part has connected from. If that is loopback or unknown, returns the address
/// in the part's Hello.
std::string address_of(const Part& part) {
  return is_loopback(part.address) ? part.hello.address : part.address;
}

}  // namespace

std::string version_fault(const Part& part, const std::string& node_program) {
  const std::string& found = part.hello.version;
  if (found == version()) return "";
  return message("host ", part.host, ": the library there is version ", found, ", here it is ", version(),
                 "; install the same one (", node_program, ")");
}

std::string plan_fault(const std::vector<Part>& parts) {
  const Part* first = nullptr;
  for (const Part& part : parts) {
    if (part.stage != Stage::kPlanned) continue;
    if (first == nullptr) first = &part;
    if (part.plan.python != first->plan.python) {
      return message("host ", part.host, ": the program runs by '", part.plan.python, "' there, on host ",
                     first->host, " by '", first->plan.python,
                     "'; let PYTHON, PATH or --venv_script choose the same one");
    }
    if (part.plan.has_gpus != first->plan.has_gpus) {
      const bool is_first = !first->plan.has_gpus;
      return message("host ", (is_first ? *first : part).host, " has no GPU, host ",
                     (is_first ? part : *first).host,
                     " has; leave hosts out (--exclude), or run all ranks on the CPU by DS_ACCELERATOR=cpu");
    }
  }
  return "";
}

std::string reason_of_no_answer(const Part& part, const std::string& why,
                                const std::optional<ExitStatus>& end, const MachineJob& job) {
  if (part.child.pid <= 0) {
    const std::string name = part.host.empty() ? message("rank ", part.number) : "host " + part.host;
    return message(name, ": ", why, "; --launcher ", name_of(job.args.runner),
                   " has not started its program, or that cannot connect to this machine");
  }
  const int code = end ? end->exit_code() : -1;
  if (code == 127 || code == 126) {
    return message("host ", part.host, ": the program ", job.node_program, " cannot be run there (exit code ",
                   code, "); install this library at the same place, or name another one by DS_NODE_PROGRAM");
  }
  const std::string noise = part.link ? part.link->noise() : "";
  return message("host ", part.host, " cannot be reached by ssh (", end ? end->describe() : why,
                 noise.empty() ? "" : "; what answers there wrote '" + noise + "'",
                 "); its errors stand above. Set up ssh without a password, or leave the host out",
                 job.checks_hosts
                     ? " of the hostfile; --no_ssh_check leaves this check out where --launcher reaches it "
                       "by another way"
                     : " (--exclude)");
}

Placement place_on_machines(const std::vector<Part>& parts, const ResourcePool& nodes) {
  Placement placement{nodes, {}, ""};
  for (const Part& part : parts) {
    if (part.stage != Stage::kGreeted) continue;
    if (placement.orders.empty()) placement.address = address_of(part);
    const int node = static_cast<int>(placement.orders.size());
    placement.orders.emplace_back().node = node;
  }
  return placement;
}

Placement placement_of_ranks(const std::vector<Part>& parts) {
  Placement placement{{}, {}, address_of(parts.front())};
  std::vector<std::string> machines;
  for (const Part& part : parts) {
    const std::string& machine = part.hello.machine;
    const auto found = std::find(machines.begin(), machines.end(), machine);
    const auto node = static_cast<size_t>(found - machines.begin());
    if (found == machines.end()) {
      machines.push_back(machine);
      placement.nodes.push_back({"machine-" + std::to_string(node), {}});
    }
    std::vector<int>& slots = placement.nodes[node].slots;
    Prepare& order = placement.orders.emplace_back();
    order.node = static_cast<int>(node);
    order.rank = part.number;
    order.local_rank = static_cast<int>(slots.size());
    slots.push_back(order.local_rank);
  }
  return placement;
}

}  // namespace deepspeed::launcher
