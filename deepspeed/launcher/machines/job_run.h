// One start of a job over machines, from the launcher's side.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/launcher/args/exit_code.h"
#include "deepspeed/launcher/machines/ending.h"
#include "deepspeed/launcher/machines/machine_job.h"
#include "deepspeed/launcher/machines/output_writer.h"
#include "deepspeed/launcher/machines/part.h"
#include "deepspeed/launcher/machines/roster.h"
#include "deepspeed/launcher/node/node_launch.h"

namespace deepspeed::launcher {

/// Starts the ranks of `nodes`. Their output goes to standard output. Each problem is a log line that names
/// host and rank.
class JobRun {
 public:
  JobRun(const MachineJob& job, const ResourcePool& nodes, int restarts, const BlockedSignals& signals);

  /// Runs until no rank is left on any reachable machine.
  JobEnd run();

 private:
  // The stages.
  bool await(Stage stage);
  void choose_machines();
  void prepare();
  void begin();
  void finish();
  // One turn of the loop.
  void turn();
  void wait_for_events();
  void take_signals();
  void take_signal(int number);
  void pause();
  void take_messages(std::vector<Part>& parts);
  void take_message(Part& part, const Json& message);
  void take_hello(Part& part);
  void take_guests();
  void beat();
  // Delays, losses and failures.
  void watch_runner();
  void watch_silence();
  void watch_start();
  void watch_deadlines();
  void take_lost(Part& part, const std::string& why);
  void fail(std::string text, int exit_code = kErrorExitCode, std::string details = "");
  void announce_failure(Ending::Clock::time_point now);

  const MachineJob& job_;
  ResourcePool nodes_;
  const int restarts_;
  const std::chrono::milliseconds silence_limit_;
  const Descriptor signal_fd_;
  Roster roster_;
  Ending ending_;
  OutputWriter output_;
  std::string address_;
  int port_ = 0;
  Channel::Clock::time_point last_beat_, stage_began_ = Channel::Clock::now();
  std::optional<Channel::Clock::time_point> first_guest_;
};

}  // namespace deepspeed::launcher
