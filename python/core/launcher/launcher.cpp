// The launcher's grammars and command lines for deepspeed.launcher, and the rules of deepspeed.elasticity.
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "deepspeed/base/error.h"
#include "deepspeed/config/tools/elastic_batch.h"
#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/machines/runner_command.h"
#include "deepspeed/launcher/plan/hostfile.h"
#include "deepspeed/launcher/plan/resource_filter.h"

#include "python/core/module/bindings.h"
#include "python/core/objects/json.h"

namespace deepspeed::python {
namespace {

/// Represents a resource pool in Python: [(host, [slots])], in the pool's order.
using Hosts = std::vector<std::pair<std::string, std::vector<int>>>;

launcher::ResourcePool pool_of(const Hosts& hosts) {
  launcher::ResourcePool pool;
  for (const auto& [host, slots] : hosts) pool.push_back({host, slots});
  return pool;
}

config::ElasticRules elastic_rules(const py::dict& section) {
  return config::ElasticRules::from_json(to_json(section, "elasticity"));
}

Hosts hosts_of(const launcher::ResourcePool& pool) {
  Hosts hosts;
  for (const launcher::HostSlots& node : pool) hosts.emplace_back(node.host, node.slots);
  return hosts;
}

Hosts filter_hosts(const Hosts& hosts, const std::string& include, const std::string& exclude) {
  if (!include.empty() && !exclude.empty())
    raise<UsageError>("include and exclude are both given, expected one of them");
  if (!include.empty()) return hosts_of(launcher::include_resources(pool_of(hosts), include));
  if (!exclude.empty()) return hosts_of(launcher::exclude_resources(pool_of(hosts), exclude));
  return hosts;
}

launcher::RunnerJob runner_job(const std::string& runner, const Hosts& hosts, const std::string& runner_args,
                               const std::string& node_program, const std::string& hostfile,
                               const std::vector<std::string>& variables, const std::optional<int>& ssh_port,
                               const std::string& slurm_comment) {
  launcher::RunnerJob job;
  job.runner = launcher::runner_from_name(runner);
  job.nodes = pool_of(hosts);
  for (const launcher::HostSlots& node : job.nodes) launcher::check_host_name(node.host, "");
  job.runner_args = launcher::split_words(runner_args, "--launcher_args");
  job.node_program = node_program;
  job.hostfile = hostfile;
  job.host_list = hostfile;
  job.job_id = "JOB";
  job.variables = variables;
  job.ssh_port = ssh_port;
  job.slurm_comment = slurm_comment;
  return job;
}

}  // namespace

void bind_launcher(py::module_& module) {
  module.def(
      "parse_hostfile",
      [](const std::string& text, const std::string& name) {
        std::vector<std::pair<std::string, int>> hosts;
        for (const launcher::HostSlots& node : launcher::parse_hostfile(text, name))
          hosts.emplace_back(node.host, static_cast<int>(node.slots.size()));
        return hosts;
      },
      "text"_a, "name"_a);
  module.def(
      "parse_node_specs",
      [](const std::string& text) {
        return hosts_of(launcher::parse_node_specs(text, "--include or --exclude"));
      },
      "text"_a);
  module.def("filter_hosts", &filter_hosts, "hosts"_a, "include"_a, "exclude"_a);
  module.def(
      "encode_world_info", [](const Hosts& hosts) { return launcher::encode_world_info(pool_of(hosts)); },
      "hosts"_a);
  module.def(
      "decode_world_info",
      [](const std::string& text) { return hosts_of(launcher::decode_world_info(text)); }, "text"_a);
  module.def("launch_flags", [] {
    std::vector<std::tuple<std::vector<std::string>, std::string, std::string, std::string>> flags;
    for (const launcher::LaunchFlag& flag : launcher::launch_flags())
      flags.emplace_back(flag.names, flag.kind, flag.default_value, flag.help);
    return flags;
  });
  module.def(
      "check_launch",
      [](const std::vector<std::string>& words) {
        launcher::check_runner_flags(launcher::parse_args(words).args);
      },
      "words"_a);
  module.def(
      "elastic_rules", [](const py::dict& section) { return from_json(elastic_rules(section).to_json()); },
      "section"_a, "Returns all keys of the section elasticity with their values.");
  module.def(
      "elastic_batch",
      [](const py::dict& section, int64_t num_devices) {
        const config::ElasticBatch batch = config::elastic_batch(elastic_rules(section), num_devices);
        return std::make_tuple(batch.train_batch_size, batch.valid_counts, batch.micro_batch_size);
      },
      "section"_a, "num_devices"_a);
  module.def("shell_word", &launcher::shell_word, "text"_a);
  module.def(
      "runner_command",
      [](const std::string& runner, const Hosts& hosts, const std::string& runner_args,
         const std::string& node_program, const std::string& hostfile,
         const std::vector<std::string>& variables, const std::optional<int>& ssh_port,
         const std::string& slurm_comment) {
        const auto job = runner_job(runner, hosts, runner_args, node_program, hostfile, variables, ssh_port,
                                    slurm_comment);
        return std::make_pair(launcher::runner_command(job),
                              launcher::runner_variables(job, launcher::current_environment()));
      },
      "runner"_a, "hosts"_a, "runner_args"_a, "node_program"_a, "hostfile"_a, "variables"_a, "ssh_port"_a,
      "slurm_comment"_a);
}

}  // namespace deepspeed::python
