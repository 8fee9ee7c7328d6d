// Runs a test's body as the ranks of a job, each in a forked process of its own.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "deepspeed/comm/init.h"

namespace deepspeed::testing {

/// Adds what every rank checks when its body has ended; assertions in it are the rank's.
void check_at_end_of_ranks(std::function<void()> check);

struct RunRanksOptions {
  // After that the stacks of the ranks are printed, they are killed, and the test fails. Tests run beside
  // others: what takes seconds alone may take a minute.
  std::chrono::milliseconds hang_limit = std::chrono::minutes(3);
  std::chrono::milliseconds comm_timeout = std::chrono::minutes(2);  // InitOptions::timeout of the ranks
  /// Ranks whose body has ended live on until all have: the others may still look for their store and
  /// connections.
  bool end_together = false;
};

/// How one rank ended.
struct RankOutcome {
  std::string value;                  // what the body returned
  std::vector<std::string> failures;  // failed assertions, an exception that left the body
  int exit_code = 0;                  // -1 where a signal ended it
  int signal = 0;
  bool hung = false;  // killed by the hang limit

  bool ok() const { return failures.empty() && exit_code == 0 && signal == 0; }
};

/// Runs `body` on `world_size` ranks over Gloo and loopback. GoogleTest's assertions work inside; a failed
/// one, an exception or a signal on any rank fails the calling test with that rank's message. RANK,
/// WORLD_SIZE, LOCAL_RANK, LOCAL_SIZE, MASTER_ADDR and MASTER_PORT are set, so init_distributed() inside
/// returns the same world. The calling process must have no thread pool of its own. If it holds a world of
/// one, the ranks leave that world.
void run_ranks(int world_size, const std::function<void(comm::World&)>& body,
               const RunRanksOptions& options = {});

/// As run_ranks(); returns what the bodies returned, in rank order.
std::vector<std::string> run_ranks_collect(int world_size,
                                           const std::function<std::string(comm::World&)>& body,
                                           const RunRanksOptions& options = {});

/// Runs `body(rank)` in forked processes without joining them to a world and without failing the calling
/// test: for tests of what happens when ranks die or never meet. The environment variables are set as for
/// run_ranks().
std::vector<RankOutcome> fork_ranks(int world_size, const std::function<std::string(int rank)>& body,
                                    const RunRanksOptions& options = {});

/// A TCP port of 127.0.0.1 that nobody listened on a moment ago.
int free_port();

}  // namespace deepspeed::testing
