// The loop behind run_on_machines(): job_run.cpp tells its order of events.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "deepspeed/launcher/machines/job_run.h"
#include "deepspeed/launcher/machines/job_start.h"
#include "deepspeed/launcher/machines/output_writer.h"
#include "deepspeed/launcher/machines/part.h"
#include "deepspeed/launcher/node/exit_status.h"

namespace deepspeed::launcher {

constexpr int kLostMachineExitCode = 1;

struct Failure {
  std::string text;
  std::string details;
  int exit_code = kLostMachineExitCode;
};

class JobRun {
 public:
  JobRun(const MachineJob& job, const ResourcePool& nodes, int restarts, const BlockedSignals& signals);
  ~JobRun();
  JobRun(const JobRun&) = delete;
  JobRun& operator=(const JobRun&) = delete;

  JobEnd run();

 private:
  // The stages.
  void start();
  bool await(Stage stage);
  bool all_reached(Stage stage) const;
  bool is_stopping() const { return failure_ || signal_ != 0; }
  bool scouts_have_answered() const;
  void dismiss_scouts();
  void choose_machines();
  void prepare();
  void begin();
  void finish();
  // A turn of the loop.
  void turn();
  void wait_for_events();
  void take_signals();
  void take_signal(int number);
  void pause();
  void take_messages(std::vector<Part>& parts);
  void take_message(Part& part, const Json& message);
  void take_hello(Part& part, const Hello& hello);
  void take_output(Part& part, std::string bytes);
  void take_end(Part& part, int exit_code);
  void take_guests();
  void take_lost(Part& part, const std::string& why);
  void reap();
  void watch_runner();
  void beat();
  void watch_silence();
  void watch_start();
  void watch_deadlines();
  // Ending, of job_end.cpp as what is lost, late or has failed.
  void start_cleaner(const Part& part);
  void await_cleaners();
  void fail(Failure failure);
  void announce_failure();
  void stop_all();
  void give_up_part(Part& part);

  template <Message Kind>
  void tell_running(const Kind& message) {
    for (Part& part : parts_) {
      if (part.link && part.stage == Stage::kRunning) part.link->send(message);
    }
  }

  const MachineJob& job_;
  ResourcePool nodes_;
  const int restarts_;
  const std::chrono::milliseconds silence_limit_;
  const int signal_fd_;
  JobStart start_;
  std::vector<Part> parts_, scouts_;
  Child runner_;
  struct Cleaner {
    Child child;
    Channel::Clock::time_point began;
  };
  std::vector<Cleaner> cleaners_;
  std::map<pid_t, ExitStatus> exits_;  // of processes that were started here
  OutputWriter output_;
  std::string address_;
  int port_ = 0;
  bool has_run_ = false;
  int signal_ = 0;
  std::optional<Failure> failure_;
  bool failure_is_announced_ = false;
  std::vector<std::string> lost_hosts_;
  Channel::Clock::time_point last_beat_, stage_began_ = Channel::Clock::now();
  std::optional<Channel::Clock::time_point> announce_at_, give_up_at_, first_guest_;
};

}  // namespace deepspeed::launcher
