// What a start of a job runs on this machine: ssh for each host, or pdsh, mpirun, srun.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/launcher/link/tcp_link.h"
#include "deepspeed/launcher/machines/job_run.h"
#include "deepspeed/launcher/machines/part.h"
#include "deepspeed/launcher/machines/runner_command.h"

namespace deepspeed::launcher {

/// Whether the runner starts a program for each rank, in place of one for each machine.
bool places_ranks(Runner runner);

class JobStart {
 public:
  JobStart(const MachineJob& job, const ResourcePool& nodes, const BlockedSignals& signals);
  ~JobStart();
  JobStart(const JobStart&) = delete;
  JobStart& operator=(const JobStart&) = delete;

  /// Returns the parts of the job: with their links where the runner is ssh, whose processes start here. A
  /// host that is this machine needs no ssh.
  std::vector<Part> parts() const;

  /// Goes to each machine by ssh beside the runner: with the job's description where that is pdsh, which
  /// hands on neither input nor variables, and where it is MPI's and hosts are checked to see whether each
  /// answers. The programs there end with the links of the parts that are returned.
  std::vector<Part> scouts() const;

  /// Starts pdsh, mpirun or srun for these machines.
  Child start_runner(const ResourcePool& nodes);

  /// Starts what ends the processes of a part from outside: they may hang. That goes by ssh. Under Slurm it
  /// cancels the whole job, which stays in the queue where srun was killed. Nothing where the part has not
  /// told which they are, and under MPI.
  std::optional<Child> start_cleaner(const Part& part) const;

  /// Returns where programs connect to; nothing where the runner is ssh.
  LinkListener* listener() const { return listener_.get(); }

  /// Returns the description for links that carry it themselves; "" where it has come before.
  std::string text_for_links() const;

 private:
  std::optional<Child> start_cancelling(const Part& part) const;
  CarriedJob carried_job() const;
  RunnerJob runner_job() const;
  Part part_by_ssh(const HostSlots& node, int number, const std::vector<std::string>& words) const;
  void write_host_list(const ResourcePool& nodes);

  const MachineJob& job_;
  const ResourcePool nodes_;
  const BlockedSignals& signals_;
  std::string id_;
  std::string secret_;
  std::string store_secret_;  // of the store in which the ranks meet
  std::unique_ptr<LinkListener> listener_;
  std::string host_list_;  // a file
};

}  // namespace deepspeed::launcher
