#include "tests/support/rank_process.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <vector>

#include <ATen/Parallel.h>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/json.h"

namespace deepspeed::testing {
namespace {

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

void set_environment(const RankPlace& place) {
  env::set("RANK", std::to_string(place.rank));
  env::set("WORLD_SIZE", std::to_string(place.world_size));
  env::set("LOCAL_RANK", std::to_string(place.rank));
  env::set("LOCAL_SIZE", std::to_string(place.world_size));
  env::set("MASTER_ADDR", "127.0.0.1");
  env::set("MASTER_PORT", std::to_string(place.port));
}

std::vector<std::function<void()>>& checks_at_end() {
  static std::vector<std::function<void()>> checks;
  return checks;
}

}  // namespace

void check_at_end_of_ranks(std::function<void()> check) { checks_at_end().push_back(std::move(check)); }

ReservedPort::ReservedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
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

ReservedPort::~ReservedPort() { ::close(socket_); }

pid_t fork_rank(const RankPlace& place, const std::function<void()>& body) {
  std::fflush(nullptr);  // else the rank writes what is buffered here
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  if (pid > 0) return pid;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  set_environment(place);
  // Where the parent had set a number of threads, torch makes its pool anew at the first use after a fork,
  // and fails where two threads are the first at one moment.
  at::init_num_threads();
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  delete listeners.Release(listeners.default_result_printer());
  body();
  std::fflush(nullptr);
  ::_exit(0);
}

std::string report_of(const std::function<std::string()>& body) {
  std::vector<std::string> failures;
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  auto* const collector = new FailureCollector(&failures);
  listeners.Append(collector);
  std::string value;
  try {
    value = body();
    for (const auto& check : checks_at_end()) check();
  } catch (const std::exception& error) {
    failures.push_back(std::string("exception: ") + error.what());
  } catch (...) {
    failures.push_back("an exception that is no std::exception");
  }
  delete listeners.Release(collector);
  const Json report = {{"value", Json::binary({value.begin(), value.end()})}, {"failures", failures}};
  const std::vector<uint8_t> message = Json::to_cbor(report);  // values and messages may hold any bytes
  return {message.begin(), message.end()};
}

RankOutcome outcome_of(const std::string& report) {
  RankOutcome outcome;
  const auto parts = Json::from_cbor(report);
  const auto& bytes = parts.at("value").get_binary();
  outcome.value.assign(bytes.begin(), bytes.end());
  outcome.failures = parts.at("failures").get<std::vector<std::string>>();
  return outcome;
}

void report_to_test(const RankPlace& place, const RankOutcome& outcome) {
  const auto where = "rank " + std::to_string(place.rank) + " of " + std::to_string(place.world_size);
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

void print_stacks(pid_t process) {
  const std::string pid = std::to_string(process);
  const std::string gdb = "timeout 60 gdb -p " + pid + " -batch -ex 'thread apply all bt 30' 2>/dev/null";
  const std::string command = "command -v gdb >/dev/null && echo stacks of process " + pid + " && " + gdb;
  std::fflush(nullptr);
  if (std::system(("{ " + command + "; } >&2").c_str()) != 0)
    std::fprintf(stderr, "process %s hangs\n", pid.c_str());
}

bool write_all(int fd, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const auto written = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    done += static_cast<size_t>(written);
  }
  return true;
}

}  // namespace deepspeed::testing
