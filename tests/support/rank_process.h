// One rank of a test: a forked process, what it reports, and what of that fails the test.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include <sys/types.h>

#include "tests/support/run_ranks.h"

namespace deepspeed::testing {

/// A port that is nobody else's while this lives: the ranks may listen there, and the system gives it to no
/// other process that asks for any.
class ReservedPort {
 public:
  ReservedPort();
  ~ReservedPort();
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  int port() const { return port_; }

 private:
  int socket_;
  int port_ = 0;
};

/// Where a rank stands in its job.
struct RankPlace {
  int rank = 0;
  int world_size = 1;
  int port = 0;  // MASTER_PORT
};

/// Forks a process with the environment of a rank. It runs `body`, which throws nothing, and ends; it is
/// killed where this process ends first.
pid_t fork_rank(const RankPlace& place, const std::function<void()>& body);

/// Runs `body` in a rank. Returns what it returned, its failed assertions and its exception as bytes that
/// outcome_of() reads.
std::string report_of(const std::function<std::string()>& body);
RankOutcome outcome_of(const std::string& report);

/// Fails the calling test by what happened to a rank.
void report_to_test(const RankPlace& place, const RankOutcome& outcome);

/// Writes what a process that hangs waits for to the test's log, where there is a debugger.
void print_stacks(pid_t process);

/// Returns whether all of `bytes` were written.
bool write_all(int fd, const std::string& bytes);

}  // namespace deepspeed::testing
