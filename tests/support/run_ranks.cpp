#include "tests/support/run_ranks.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/join_world.h"
#include "tests/support/rank_process.h"

namespace deepspeed::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  pid_t pid = -1;
  int pipe = -1;
  std::string sent;
};

// A pipe whose ends no program that the process starts gets.
std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw std::runtime_error(std::string("pipe: ") + std::strerror(errno));
  return ends;
}

// Returns once the other end is closed.
void wait_for_end_of(int fd) {
  char byte = 0;
  while (::read(fd, &byte, 1) > 0 || errno == EINTR) errno = 0;
}

/// may_end: a pipe that closes when the ranks may end.
Child start_rank(const RankPlace& place, const std::array<int, 2>& may_end, bool waits,
                 const std::function<std::string(int)>& body) {
  const auto ends = make_pipe();
  const pid_t pid = fork_rank(place, [&] {
    ::close(ends[0]);
    ::close(may_end[1]);
    write_all(ends[1], report_of([&] { return body(place.rank); }));
    ::close(ends[1]);
    if (waits) wait_for_end_of(may_end[0]);
  });
  ::close(ends[1]);
  return {pid, ends[0], {}};
}

// Reads what the ranks send until each has closed its pipe, or the time is up.
void read_all(std::vector<Child>& children, Clock::time_point deadline) {
  while (Clock::now() < deadline) {
    std::vector<pollfd> waiting;
    for (const auto& child : children) {
      if (child.pipe >= 0) waiting.push_back({child.pipe, POLLIN, 0});
    }
    if (waiting.empty()) return;
    ::poll(waiting.data(), waiting.size(), 100);
    for (const auto& ready : waiting) {
      if (ready.revents == 0) continue;
      for (auto& child : children) {
        if (child.pipe != ready.fd) continue;
        char buffer[1 << 16];
        const auto count = ::read(child.pipe, buffer, sizeof(buffer));
        if (count > 0) {
          child.sent.append(buffer, static_cast<size_t>(count));
        } else {
          ::close(child.pipe);
          child.pipe = -1;
        }
      }
    }
  }
}

RankOutcome end_rank(Child& child) {
  const bool hung = child.pipe >= 0;
  if (hung) {
    ::kill(child.pid, SIGKILL);
    ::close(child.pipe);
  }
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  RankOutcome outcome = child.sent.empty() || hung ? RankOutcome{} : outcome_of(child.sent);
  outcome.hung = hung;
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return outcome;
}

}  // namespace

int free_port() { return ReservedPort().port(); }

std::vector<RankOutcome> fork_ranks(int world_size, const std::function<std::string(int rank)>& body,
                                    const RunRanksOptions& options) {
  const auto deadline = Clock::now() + options.hang_limit;
  const ReservedPort reserved;
  const auto may_end = make_pipe();
  std::vector<Child> children;
  for (int rank = 0; rank < world_size; ++rank) {
    children.push_back(start_rank({rank, world_size, reserved.port()}, may_end, options.end_together, body));
  }
  read_all(children, deadline);
  if (options.hang_limit > std::chrono::minutes(1)) {  // a test that wants a hang has a short one
    for (const Child& child : children)
      if (child.pipe >= 0) print_stacks(child.pid);
  }
  for (const int end : may_end) ::close(end);
  std::vector<RankOutcome> outcomes;
  for (auto& child : children) outcomes.push_back(end_rank(child));
  return outcomes;
}

std::vector<std::string> run_ranks_collect(int world_size,
                                           const std::function<std::string(comm::World&)>& body,
                                           const RunRanksOptions& options) {
  const auto run = [&](int) {
    comm::destroy_process_group();  // a world of one that an earlier test left in the parent
    auto world = join_world(options.comm_timeout);
    auto value = body(world);
    world.shutdown();
    return value;
  };
  const auto outcomes = fork_ranks(world_size, run, options);
  std::vector<std::string> values;
  for (int rank = 0; rank < world_size; ++rank) {
    report_to_test({rank, world_size}, outcomes[rank]);
    values.push_back(outcomes[rank].value);
  }
  return values;
}

void run_ranks(int world_size, const std::function<void(comm::World&)>& body,
               const RunRanksOptions& options) {
  run_ranks_collect(
      world_size,
      [&](comm::World& world) {
        body(world);
        return std::string();
      },
      options);
}

}  // namespace deepspeed::testing
