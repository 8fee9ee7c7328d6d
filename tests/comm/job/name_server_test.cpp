// A job does not ask a name server for addresses it has, and on a single machine listens only at loopback.
// Each test runs in its own namespaces, with a name server that counts questions and answers none.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>

#include <ATen/ops/ones.h>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/job/known_host.h"
#include "deepspeed/comm/store/store_address.h"

#include "tests/support/join_world.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::comm {
namespace {

using testing::fork_ranks;
using testing::join_world;

constexpr const char* kOtherAddress = "10.77.0.1";  // of the namespace, not loopback
constexpr int kCannot = 77;

sockaddr_in ipv4(const char* address, int port) {
  sockaddr_in result{};
  result.sin_family = AF_INET;
  result.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, address, &result.sin_addr);
  return result;
}

/// Is the only name server in this namespace.
class DeadNameServer {
 public:
  DeadNameServer() : socket_(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    const auto address = ipv4("127.0.0.1", 53);
    is_there_ = ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  }
  bool is_there() const { return is_there_; }
  /// Returns how often it was asked since the last call.
  int num_questions() const {
    int count = 0;
    for (char byte = 0; ::recv(socket_.get(), &byte, 1, 0) >= 0;) ++count;
    return count;
  }

 private:
  Descriptor socket_;
  bool is_there_ = false;
};

// c10d asks like this for every peer.
void ask_for_a_name() {
  sockaddr_in6 peer{};
  peer.sin6_family = AF_INET6;
  ::inet_pton(AF_INET6, "::ffff:127.0.0.1", &peer.sin6_addr);
  char name[NI_MAXHOST];
  ::getnameinfo(reinterpret_cast<sockaddr*>(&peer), sizeof(peer), name, sizeof(name), nullptr, 0, 0);
}

bool enter_namespaces(const std::string& resolver_file) {
  std::ofstream(resolver_file) << "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n";
  if (::unshare(CLONE_NEWNS | CLONE_NEWNET) != 0) return false;
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  if (::mount(resolver_file.c_str(), "/etc/resolv.conf", nullptr, MS_BIND, nullptr) != 0) return false;
  const Descriptor any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  if (::ioctl(any.get(), SIOCSIFFLAGS, &request) != 0) return false;
  std::strcpy(request.ifr_name, "lo:1");
  const auto address = ipv4(kOtherAddress, 0);
  std::memcpy(&request.ifr_addr, &address, sizeof(address));
  return ::ioctl(any.get(), SIOCSIFADDR, &request) == 0;
}

/// Runs `body` in such namespaces, in a separate process that exits with its result.
void in_namespaces(const std::function<int(const DeadNameServer&)>& body) {
  const testing::TemporaryFolder folder;
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    if (!enter_namespaces(folder.string() + "/resolv.conf")) ::_exit(kCannot);
    const DeadNameServer server;
    if (!server.is_there()) ::_exit(kCannot);
    ask_for_a_name();
    if (server.num_questions() == 0) ::_exit(kCannot);  // names come from elsewhere
    const int code = body(server);
    std::fflush(nullptr);  // writes failures
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == kCannot) GTEST_SKIP() << "no namespaces of one's own, or names from no name server";
  EXPECT_EQ(code, 0);
}

/// Returns the addresses at which this namespace listens, except loopback.
std::string listeners_beyond_loopback() {
  std::string found;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(table);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state;
      words >> number >> local >> remote >> state;
      if (state == "0A" && !local.starts_with("0100007F:")) found += local + " ";
    }
  }
  return found;
}

/// Lets two ranks meet, make a group and use it. Fails if they or their system asked a name server.
int questions_of_a_job(const DeadNameServer& server, const char* master_addr) {
  const auto outcomes = fork_ranks(2, [&](int) {
    env::set("MASTER_ADDR", std::string(master_addr));
    if (master_addr == kOtherAddress) env::set("LOCAL_SIZE", std::nullopt);
    env::set("DEEPSPEED_SHARED_MEMORY", std::string("0"));  // over Gloo
    auto world = join_world();
    const auto group = world.own_group("engine");
    group.all_reduce(at::ones({10}));
    const auto listeners = listeners_beyond_loopback();
    world.shutdown();
    return listeners;
  });
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(outcome.ok()) << (outcome.failures.empty() ? "" : outcome.failures.front());
    if (master_addr != kOtherAddress) {
      EXPECT_EQ(outcome.value, "");
    }
  }
  EXPECT_EQ(server.num_questions(), 0);
  return ::testing::Test::HasFailure() ? 1 : 0;
}

TEST(NameServer, IsNotAskedByAJobOfOneMachineWhichListensAtLoopbackAlone) {
  in_namespaces([](const DeadNameServer& server) { return questions_of_a_job(server, "127.0.0.1"); });
}

TEST(NameServer, IsNotAskedByAJobOfSeveralMachinesForTheirAddresses) {
  in_namespaces([](const DeadNameServer& server) { return questions_of_a_job(server, kOtherAddress); });
}

TEST(NameServer, IsNotAskedWhereTheHostIsAnAddress) {
  in_namespaces([](const DeadNameServer& server) {
    {
      const NoNameServer none(kOtherAddress);
      ask_for_a_name();
    }
    EXPECT_EQ(server.num_questions(), 0);
    {
      const NoNameServer none("some-host");
      ask_for_a_name();
    }
    EXPECT_GT(server.num_questions(), 0);
    ask_for_a_name();
    EXPECT_GT(server.num_questions(), 0);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
}

}  // namespace
}  // namespace deepspeed::comm
