// The list follows Determined 0.38, docs/reference/experiment-config-reference.rst and schemas/expconf/v0.
#include "deepspeed/trial/experiment/refused_keys.h"

#include <string_view>

#include "deepspeed/base/message.h"

namespace deepspeed::trial {
namespace {

struct ClusterKey {
  std::string_view path;
  const char* purpose;  // there
  const char* instead;  // here
};

struct OtherKey {
  std::string_view path;
  const char* refusal;
};

constexpr const char* kHere = "a trial runs on this machine, as its user";
constexpr const char* kOneExperiment = "leave it out: one experiment has all slots that it is started with";
constexpr const char* kFolder =
    "leave it out: checkpoints lie in the experiment's folder, which is chosen when it is started";
constexpr const char* kNoMeaning = "Determined itself has dropped this key; leave it out";

constexpr ClusterKey kClusterKeys[] = {
    {"bind_mounts", "mounts folders into containers", "give the program the paths of this machine"},
    {"environment", "says what containers hold", "set variables where the experiment is started"},
    {"integrations", "connects its master with other services", "let the program read its data"},
    {"log_policies", "watches logs on its master", "read the logs of the trials in the experiment's folder"},
    {"retention_policy", "deletes logs on its master", "delete the experiment's folder when it is done"},
    {"pbs", "passes options to PBS", "start the experiment inside a job of PBS"},
    {"slurm", "passes options to Slurm", "start the experiment inside a job of Slurm"},
    {"preemption_timeout", "lets its scheduler end trials", "leave it out: no trial is preempted"},
    {"profiling", "sends measures to its master",
     "use wall_clock_breakdown of the program's deepspeed config"},
    {"project", "sorts experiments on its master", "use name and labels"},
    {"workspace", "sorts experiments on its master", "use name and labels"},
    {"security", "says which keys its master uses", "leave it out"},
    {"debug", "makes its agents log more", "set DEEPSPEED_LOG_LEVEL for the program"},
    {"tensorboard_storage", "says where its master keeps events",
     "use the section csv_monitor of the program's deepspeed config"},
    {"resources.devices", "passes devices into containers", kHere},
    {"resources.is_single_node", "limits its scheduler", "leave it out: all trials run on one machine"},
    {"resources.max_slots", "limits its scheduler", "use searcher.max_concurrent_trials"},
    {"resources.priority", "orders experiments of several users", kOneExperiment},
    {"resources.resource_pool", "chooses machines of the cluster", "start the experiment on the machine"},
    {"resources.shm_size", "sizes the shared memory of containers", kHere},
    {"resources.weight", "shares slots between experiments", kOneExperiment},
    {"checkpoint_storage.type", "says where its agents put checkpoints", kFolder},
    {"checkpoint_storage.host_path", "says where its agents put checkpoints", kFolder},
    {"checkpoint_storage.storage_path", "says where its agents put checkpoints", kFolder},
    {"checkpoint_storage.container_path", "says where containers put checkpoints", kFolder},
    {"checkpoint_storage.checkpoint_path", "says where its agents put checkpoints", kFolder},
    {"checkpoint_storage.tensorboard_path", "says where its agents put events", kFolder},
    {"checkpoint_storage.propagation", "mounts folders into containers", kFolder},
    {"checkpoint_storage.bucket", "says where its agents put checkpoints", kFolder},
    {"checkpoint_storage.prefix", "says where its agents put checkpoints", kFolder},
    {"checkpoint_storage.container", "says where its agents put checkpoints", kFolder},
    {"checkpoint_storage.endpoint_url", "says where its agents put checkpoints", kFolder},
    {"checkpoint_storage.account_url", "says where its agents put checkpoints", kFolder},
    {"checkpoint_storage.access_key", "opens a store of checkpoints", kFolder},
    {"checkpoint_storage.secret_key", "opens a store of checkpoints", kFolder},
    {"checkpoint_storage.connection_string", "opens a store of checkpoints", kFolder},
    {"checkpoint_storage.credential", "opens a store of checkpoints", kFolder},
    {"checkpoint_storage.user", "opens a store of checkpoints", kFolder},
    {"searcher.source_trial_id", "finds a trial in its database",
     "let the program load a checkpoint, whose folder is a hyperparameter"},
    {"searcher.source_checkpoint_uuid", "finds a checkpoint in its database",
     "let the program load a checkpoint, whose folder is a hyperparameter"},
};

constexpr OtherKey kOtherKeys[] = {
    {"optimizations", "sets options of Determined's own trainer; set them in the program's deepspeed config"},
    {"perform_initial_validation",
     "asks Determined's own trainer to validate first; let the program do so before it trains"},
    {"searcher.bracket_rungs", "is not read: searcher.mode and searcher.max_rungs choose the brackets"},
    {"searcher.num_rungs", "is a key of async_halving; use searcher.max_rungs with mode: aggressive"},
    {"searcher.budget", kNoMeaning},
    {"searcher.train_stragglers", kNoMeaning},
    {"searcher.unit", kNoMeaning},
    {"resources.agent_label", kNoMeaning},
    {"resources.native_parallel", kNoMeaning},
    {"resources.slots", "has no effect in Determined; use resources.slots_per_trial"},
    {"data_layer", kNoMeaning},
    {"internal", kNoMeaning},
};

}  // namespace

std::string refusal_of(const std::string& path) {
  for (const ClusterKey& key : kClusterKeys) {
    if (key.path == path)
      return message("needs Determined's cluster, where it ", key.purpose, "; instead: ", key.instead);
  }
  for (const OtherKey& key : kOtherKeys) {
    if (key.path == path) return key.refusal;
  }
  return "";
}

}  // namespace deepspeed::trial
