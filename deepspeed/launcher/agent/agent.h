// The program on one machine of a job, or for one rank under MPI and Slurm. It starts and watches ranks, at
// the other end of a link to the job's launcher.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/launcher/args/args.h"
#include "deepspeed/launcher/link/carried_job.h"
#include "deepspeed/launcher/link/channel.h"
#include "deepspeed/launcher/link/messages.h"
#include "deepspeed/launcher/node/exit_status.h"
#include "deepspeed/launcher/node/node_launch.h"
#include "deepspeed/launcher/node/port.h"

namespace deepspeed::launcher {

class Agent {
 public:
  /// Takes the link to the launcher. `job` is unset if the launcher will send it. `relays_output` says that
  /// the link uses standard output; the ranks' output then travels over the link as messages. `signals` must
  /// outlive the agent.
  Agent(Channel link, std::optional<CarriedJob> job, bool relays_output, const BlockedSignals& signals);

  /// Runs until the link and all ranks have ended. Returns the program's exit code.
  int run();

 private:
  void wait_for_events();
  void take_message(const Json& message);
  void prepare(const Prepare& order);
  Planned plan(const Prepare& order);
  PortChoice check_meeting(const LaunchArgs& args, const std::string& address) const;
  void start(const Start& order);
  void take_signals();
  void take_signal(int number);
  void read_reports();
  void pass_output_on();
  void beat();
  void reap();
  void end(int exit_code);

  Channel link_;
  std::optional<CarriedJob> job_;
  const bool relays_output_;
  const BlockedSignals& signals_;
  std::chrono::milliseconds silence_limit_{60000};  // until Prepare sets it
  const Descriptor signal_fd_;
  Pipe life_, reports_, output_;
  NodeLaunch launch_;
  pid_t supervisor_ = 0;
  std::optional<ExitStatus> supervisor_status_;
  std::string report_text_;
  size_t unwritten_ = 0;  // bytes of output that the launcher has not written yet
  bool output_ended_ = false;
  bool ended_ = false;
  bool paused_ = false;
  bool supervisor_hangs_ = false;
  Channel::Clock::time_point last_beat_, last_report_ = Channel::Clock::now();
  std::optional<Channel::Clock::time_point> kill_at_, leave_at_;
};

}  // namespace deepspeed::launcher
