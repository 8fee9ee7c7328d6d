// The processes that a start of a job begins on this machine, and its links to other machines.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/types.h>

#include "deepspeed/launcher/link/tcp_link.h"
#include "deepspeed/launcher/machines/machine_job.h"
#include "deepspeed/launcher/machines/part.h"
#include "deepspeed/launcher/machines/runner_command.h"
#include "deepspeed/launcher/node/child.h"
#include "deepspeed/launcher/node/exit_status.h"
#include "deepspeed/launcher/node/node_launch.h"

namespace deepspeed::launcher {

/// Starts a job's processes on this machine, and ends them. They are ssh for each host, or the runner (pdsh,
/// mpirun, srun) and scouts. A scout is a program on a host that ssh starts besides the runner.
class Roster {
 public:
  Roster(const MachineJob& job, const ResourcePool& nodes, const BlockedSignals& signals);
  ~Roster();
  Roster(const Roster&) = delete;
  Roster& operator=(const Roster&) = delete;

  /// Makes the job's parts, and starts ssh for each, or the runner and scouts.
  void start();

  /// Starts a cleaner, which ends a part's processes from outside, since they may hang. The cleaner runs by
  /// ssh. Under Slurm it cancels the whole job, which stays in the queue if srun was killed. Nothing is
  /// started under MPI, or if the part has not named its process.
  void start_cleaner(const Part& part);

  std::vector<Part>& parts() { return parts_; }
  std::vector<Part>& scouts() { return scouts_; }

  /// Takes the links of programs that have connected. Returns their parts.
  std::vector<Part*> take_guests();

  void append_poll_entries(std::vector<pollfd>& entries) const;

  /// Returns whether all parts have reached the stage.
  bool all_reached(Stage stage) const;
  bool scouts_have_answered() const;
  /// Ends all scouts.
  void dismiss_scouts();

  /// Sends a message to all parts with running ranks.
  template <Message Kind>
  void tell_running(const Kind& message) {
    for (Part& part : parts_) {
      if (part.link && part.stage == Stage::kRunning) part.link->send(message);
    }
  }

  /// Asks all parts to stop. With `ranks_run`, those that have answered send Ended later. All others count as
  /// ended at once, and their links are closed.
  void stop_all(bool ranks_run);
  /// Ends a part without waiting for its ranks.
  void give_up(Part& part);

  /// Collects the status of processes that have ended.
  void reap();
  /// Returns how a process has ended, or nothing if it runs or was never started.
  std::optional<ExitStatus> exit_of(const Child& child) const;
  const Child& runner() const { return runner_; }
  /// Returns whether all cleaners have ended or exceeded their time.
  bool cleaners_are_done() const;

  /// Closes all links, and ends processes that still run after `patience` (end_children()).
  void end(std::chrono::seconds patience);

  /// Returns the job's description for the message Prepare. It is empty if the parts have it already.
  std::string text_for_links() const;

 private:
  struct Cleaner {
    Child child;
    Channel::Clock::time_point began;
  };
  void start_parts();
  /// Starts a program on each machine by ssh, besides the runner. pdsh passes on neither input nor variables,
  /// so under pdsh that program brings the job's description. Under MPI it shows whether the host answers, if
  /// hosts are checked.
  void start_scouts();
  void start_runner();
  std::vector<std::string> cleaning_words(const Part& part) const;
  CarriedJob carried_job() const;
  RunnerJob runner_job() const;
  Part part_by_ssh(const HostSlots& node, int number, const std::vector<std::string>& words) const;
  void write_host_list();

  const MachineJob& job_;
  const ResourcePool nodes_;
  const BlockedSignals& signals_;
  std::string id_;
  std::string secret_;
  std::string store_secret_;  // for the store in which the ranks meet
  std::unique_ptr<LinkListener> listener_;
  std::string host_list_;  // the path of a file
  std::vector<Part> parts_, scouts_;
  Child runner_;
  std::vector<Cleaner> cleaners_;
  std::map<pid_t, ExitStatus> exits_;  // of processes started here
};

}  // namespace deepspeed::launcher
