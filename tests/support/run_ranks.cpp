#include "tests/support/run_ranks.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include <ATen/Parallel.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/json.h"

#include "tests/support/join_world.h"

namespace deepspeed::testing {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  pid_t pid = -1;
  int pipe = -1;
  std::string sent;
};

// Collects the failed assertions of a rank, for the parent to report.
class FailureCollector : public ::testing::EmptyTestEventListener {
 public:
  explicit FailureCollector(std::vector<std::string>* failures) : failures_(failures) {}
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const auto* file = result.file_name() == nullptr ? "unknown file" : result.file_name();
    failures_->push_back(std::string(file) + ":" + std::to_string(result.line_number()) + ": " +
                         result.summary());
  }

 private:
  std::vector<std::string>* failures_;
};

void set_environment(int rank, int world_size, int port) {
  env::set("RANK", std::to_string(rank));
  env::set("WORLD_SIZE", std::to_string(world_size));
  env::set("LOCAL_RANK", std::to_string(rank));
  env::set("LOCAL_SIZE", std::to_string(world_size));
  env::set("MASTER_ADDR", "127.0.0.1");
  env::set("MASTER_PORT", std::to_string(port));
}

void write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const auto written = ::write(fd, text.data() + done, text.size() - done);
    if (written <= 0) return;
    done += static_cast<size_t>(written);
  }
}

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

std::vector<std::function<void()>>& checks_at_end() {
  static std::vector<std::function<void()>> checks;
  return checks;
}

/// may_end: read until its end before the process goes; -1: it goes at once.
[[noreturn]] void be_rank(int rank, int fd, int may_end, const std::function<std::string(int)>& body) {
  std::vector<std::string> failures;
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new FailureCollector(&failures));
  std::string value;
  try {
    value = body(rank);
    for (const auto& check : checks_at_end()) check();
  } catch (const std::exception& error) {
    failures.push_back(std::string("exception: ") + error.what());
  } catch (...) {
    failures.push_back("an exception that is no std::exception");
  }
  const Json report = {{"value", Json::binary({value.begin(), value.end()})}, {"failures", failures}};
  const std::vector<uint8_t> message = Json::to_cbor(report);  // values and messages may hold any bytes
  write_all(fd, std::string(message.begin(), message.end()));
  std::fflush(nullptr);
  ::close(fd);
  if (may_end >= 0) wait_for_end_of(may_end);
  ::_exit(0);
}

/// may_end: a pipe that closes when the ranks may end.
Child start_rank(int rank, int world_size, int port, const std::array<int, 2>& may_end, bool waits,
                 const std::function<std::string(int)>& body) {
  const auto ends = make_pipe();
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::close(ends[0]);
    ::close(may_end[1]);
    set_environment(rank, world_size, port);
    // Where the parent had set a number of threads, torch makes its pool anew at the first use after a fork,
    // and fails where two threads are the first at one moment.
    at::init_num_threads();
    be_rank(rank, ends[1], waits ? may_end[0] : -1, body);
  }
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

// What a rank that hangs waits for, in the log of the test; nothing where there is no debugger.
void print_stacks(const Child& child) {
  const std::string pid = std::to_string(child.pid);
  const std::string gdb = "timeout 60 gdb -p " + pid + " -batch -ex 'thread apply all bt 30' 2>/dev/null";
  const std::string command = "command -v gdb >/dev/null && echo stacks of process " + pid + " && " + gdb;
  std::fflush(nullptr);
  if (std::system(("{ " + command + "; } >&2").c_str()) != 0)
    std::fprintf(stderr, "process %s hangs\n", pid.c_str());
}

RankOutcome end_rank(Child& child) {
  RankOutcome outcome;
  if (child.pipe >= 0) {
    outcome.hung = true;
    ::kill(child.pid, SIGKILL);
    ::close(child.pipe);
  }
  int status = 0;
  ::waitpid(child.pid, &status, 0);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  outcome.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (!child.sent.empty() && !outcome.hung) {
    const auto report = Json::from_cbor(child.sent);
    const auto& bytes = report.at("value").get_binary();
    outcome.value.assign(bytes.begin(), bytes.end());
    outcome.failures = report.at("failures").get<std::vector<std::string>>();
  }
  return outcome;
}

void report_to_test(int rank, int world_size, const RankOutcome& outcome) {
  const auto where = "rank " + std::to_string(rank) + " of " + std::to_string(world_size);
  for (const auto& failure : outcome.failures) ADD_FAILURE() << where << ": " << failure;
  if (outcome.hung) {
    ADD_FAILURE() << where << " hung and was killed";
  } else if (outcome.signal != 0) {
    ADD_FAILURE() << where << " was ended by signal " << outcome.signal << " (" << ::strsignal(outcome.signal)
                  << ")";
  } else if (outcome.exit_code != 0) {
    ADD_FAILURE() << where << " ended with exit code " << outcome.exit_code;
  }
}

// A port that is nobody else's while this lives: the ranks may listen there, and the system gives it to no
// other process that asks for any.
class ReservedPort {
 public:
  ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    const int on = 1;  // after bind(): only then is the port this one's alone
    if (socket_ < 0 || ::bind(socket_, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
        ::setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) {
      throw std::runtime_error(std::string("no free port: ") + std::strerror(errno));
    }
    port_ = ntohs(address.sin_port);
  }
  ~ReservedPort() { ::close(socket_); }
  ReservedPort(const ReservedPort&) = delete;
  ReservedPort& operator=(const ReservedPort&) = delete;
  int port() const { return port_; }

 private:
  int socket_;
  int port_ = 0;
};

}  // namespace

void check_at_end_of_ranks(std::function<void()> check) { checks_at_end().push_back(std::move(check)); }

int free_port() { return ReservedPort().port(); }

std::vector<RankOutcome> fork_ranks(int world_size, const std::function<std::string(int rank)>& body,
                                    const RunRanksOptions& options) {
  const auto deadline = Clock::now() + options.hang_limit;
  const ReservedPort reserved;
  std::fflush(nullptr);  // else every rank writes what is buffered here
  const auto may_end = make_pipe();
  std::vector<Child> children;
  for (int rank = 0; rank < world_size; ++rank) {
    children.push_back(start_rank(rank, world_size, reserved.port(), may_end, options.end_together, body));
  }
  read_all(children, deadline);
  if (options.hang_limit > std::chrono::minutes(1)) {  // a test that wants a hang has a short one
    for (const Child& child : children)
      if (child.pipe >= 0) print_stacks(child);
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
    report_to_test(rank, world_size, outcomes[rank]);
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
