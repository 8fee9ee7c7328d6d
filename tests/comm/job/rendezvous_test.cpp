// Who reaches the store through which the ranks meet: those that come to the address that MASTER_ADDR names.
#include <cerrno>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/job/listener.h"
#include "deepspeed/comm/job/own_address.h"

#include "tests/support/error_of.h"
#include "tests/support/join_world.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using ::testing::AllOf;
using testing::error_of;
using testing::fork_ranks;
using ::testing::HasSubstr;
using testing::join_world;
using namespace std::chrono_literals;

/// A socket that is bound to, or connects to, `address`; `call` says what failed.
class Socket {
 public:
  explicit Socket(const std::string& address, int port) {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* raw = nullptr;
    if (::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &raw) != 0) return;
    target_.reset(raw);
    fd_ = ::socket(raw->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  }
  ~Socket() { ::close(fd_); }
  /// "connected", or the reason why not.
  std::string connect() const {
    return ::connect(fd_, target_->ai_addr, target_->ai_addrlen) == 0 ? "connected" : ::strerror(errno);
  }
  bool listen() const {
    return ::bind(fd_, target_->ai_addr, target_->ai_addrlen) == 0 && ::listen(fd_, 1) == 0;
  }

 private:
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> target_{nullptr, ::freeaddrinfo};
  int fd_ = -1;
};

int master_port() { return static_cast<int>(env::get_int("MASTER_PORT").value()); }

/// Two ranks meet at `master_addr`; then rank 1 tries each address.
std::vector<std::string> attempts(const std::string& master_addr, const std::vector<std::string>& addresses,
                                  const std::string& listen_addr = "") {
  const auto outcomes = fork_ranks(2, [&](int rank) {
    env::set("MASTER_ADDR", master_addr);
    if (!listen_addr.empty()) env::set("DEEPSPEED_LISTEN_ADDR", listen_addr);
    auto world = join_world(20s);
    std::string texts;
    for (const auto& address : addresses) {
      if (rank == 1) texts += Socket(address, master_port()).connect() + "\n";
    }
    world.shutdown();
    return texts;
  });
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(outcome.ok()) << (outcome.failures.empty() ? "" : outcome.failures.front());
  }
  std::vector<std::string> results;
  std::istringstream lines(outcomes[1].value);
  for (std::string line; std::getline(lines, line);) results.push_back(line);
  return results;
}

constexpr const char* kRefused = "Connection refused";

TEST(Rendezvous, ListensOnTheAddressThatTheJobNamesAlone) {
  EXPECT_THAT(attempts("127.0.0.1", {"127.0.0.1", "127.0.0.2"}),
              ::testing::ElementsAre("connected", kRefused));
  EXPECT_THAT(attempts("127.0.0.2", {"127.0.0.1", "127.0.0.2"}),
              ::testing::ElementsAre(kRefused, "connected"));
}

TEST(Rendezvous, OfOneMachineIsOutOfReachOfTheNetwork) {
  const auto own = own_address_towards("192.0.2.1");
  if (!own) GTEST_SKIP() << "this machine is in no network";
  EXPECT_THAT(attempts("127.0.0.1", {*own}), ::testing::ElementsAre(kRefused));
  EXPECT_THAT(attempts(*own, {*own, "127.0.0.1"}), ::testing::ElementsAre("connected", kRefused));
}

TEST(Rendezvous, TakesNamesAndAddressesOfEitherFamily) {
  EXPECT_THAT(attempts("localhost", {"127.0.0.2"}), ::testing::ElementsAre(kRefused));
  if (!Socket("::1", testing::free_port()).listen()) GTEST_SKIP() << "this machine has no IPv6";
  EXPECT_THAT(attempts("::1", {"::1", "127.0.0.1"}), ::testing::ElementsAre("connected", kRefused));
}

// Debian maps a machine's own name to 127.0.1.1, where ranks of other machines do not come.
TEST(Rendezvous, AtANameThatMeansThisMachineAloneIsOpenToOtherMachinesOfTheJob) {
  Job job;
  job.world_size = 2;
  job.local_size = 2;
  job.master_addr = "LOCALHOST";
  job.master_port = testing::free_port();
  const Listener own = listen_for_ranks(job);
  EXPECT_EQ(own.place, "127.0.0.1");
  ::close(own.socket);
  job.local_size = 1;  // not known to be one machine
  const Listener open = listen_for_ranks(job);
  EXPECT_EQ(open.place, "all addresses of this machine");
  EXPECT_EQ(Socket(open.address, job.master_port).connect(), "connected");
  ::close(open.socket);
}

TEST(Rendezvous, ListensElsewhereWhereTheUserSaysSo) {
  EXPECT_THAT(attempts("127.0.0.1", {"127.0.0.1", "127.0.0.2"}, "0.0.0.0"),
              ::testing::ElementsAre("connected", "connected"));
}

/// What rank 0 of two complains of.
std::string error_of_rank_0(const std::string& master_addr, int port = 0,
                            const std::string& listen_addr = "") {
  const auto outcomes = fork_ranks(1, [&](int) {
    env::set("MASTER_ADDR", master_addr);
    env::set("WORLD_SIZE", "2");
    env::set("LOCAL_SIZE", "2");
    if (port != 0) env::set("MASTER_PORT", std::to_string(port));
    if (!listen_addr.empty()) env::set("DEEPSPEED_LISTEN_ADDR", listen_addr);
    return error_of<CommError>([] { join_world(2s); });
  });
  return outcomes[0].value;
}

TEST(Rendezvous, AtAnAddressOfAnotherMachineIsAnErrorWithTheWayOut) {
  EXPECT_THAT(error_of_rank_0("192.0.2.1"),
              AllOf(HasSubstr("192.0.2.1"), HasSubstr("no address of this machine"), HasSubstr("MASTER_ADDR"),
                    HasSubstr("DEEPSPEED_LISTEN_ADDR")));
  EXPECT_THAT(error_of_rank_0("127.0.0.1", 0, "192.0.2.1"),
              AllOf(HasSubstr("DEEPSPEED_LISTEN_ADDR"), HasSubstr("192.0.2.1")));
  EXPECT_THAT(error_of_rank_0("no-such-host.invalid"), HasSubstr("no-such-host.invalid"));
}

TEST(Rendezvous, AtAPortThatIsTakenIsAnErrorThatNamesIt) {
  const int port = testing::free_port();
  const Socket other("127.0.0.1", port);
  ASSERT_TRUE(other.listen());
  EXPECT_THAT(error_of_rank_0("127.0.0.1", port), AllOf(HasSubstr("port " + std::to_string(port)),
                                                        HasSubstr("is taken"), HasSubstr("MASTER_PORT")));
}

}  // namespace
}  // namespace deepspeed::comm
