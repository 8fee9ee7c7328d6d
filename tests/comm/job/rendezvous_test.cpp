// Tests who reaches the store through which ranks meet. On one machine it is processes of the user, otherwise
// those that connect to the address in MASTER_ADDR.
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ops/ones.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/job/address_list.h"
#include "deepspeed/comm/job/listener.h"

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

/// Is a socket that is bound to, or connects to, `address`.
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
  /// Returns "connected", or the reason for failure.
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

enum class Machines { kOne, kSeveral };

/// Lets two ranks meet at `master_addr`, then rank 1 try each address.
std::vector<std::string> attempts(Machines machines, const std::string& master_addr,
                                  const std::vector<std::string>& addresses,
                                  const std::string& listen_addr = "") {
  const auto outcomes = fork_ranks(2, [&](int rank) {
    env::set("MASTER_ADDR", master_addr);
    if (!listen_addr.empty()) env::set("DEEPSPEED_LISTEN_ADDR", listen_addr);
    if (machines == Machines::kSeveral) env::set("LOCAL_SIZE", std::nullopt);
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

TEST(Rendezvous, ListensAtNoAddressOnOneMachine) {
  const auto own = own_address_towards("192.0.2.1").value_or("127.0.0.3");
  for (const char* const master_addr : {"127.0.0.1", "127.0.0.2", "localhost", "::1", "192.0.2.1"}) {
    EXPECT_THAT(attempts(Machines::kOne, master_addr, {"127.0.0.1", "127.0.0.2", own}),
                ::testing::ElementsAre(kRefused, kRefused, kRefused))
        << master_addr;
  }
  EXPECT_THAT(attempts(Machines::kSeveral, "127.0.0.1", {"127.0.0.1"}), ::testing::ElementsAre(kRefused));
}

TEST(Rendezvous, ListensOnlyOnTheNamedAddressForSeveralMachines) {
  const auto own = own_address_towards("192.0.2.1");
  if (!own) GTEST_SKIP() << "this machine is in no network";
  EXPECT_THAT(attempts(Machines::kSeveral, *own, {*own, "127.0.0.1"}),
              ::testing::ElementsAre("connected", kRefused));
}

TEST(Rendezvous, ListensWhereTheUserSays) {
  EXPECT_THAT(attempts(Machines::kOne, "127.0.0.1", {"127.0.0.1", "127.0.0.2"}, "127.0.0.1"),
              ::testing::ElementsAre("connected", kRefused));
  EXPECT_THAT(attempts(Machines::kOne, "localhost", {"127.0.0.1", "127.0.0.2"}, "localhost"),
              ::testing::ElementsAre("connected", kRefused));
  EXPECT_THAT(attempts(Machines::kOne, "127.0.0.1", {"127.0.0.1", "127.0.0.2"}, "0.0.0.0"),
              ::testing::ElementsAre("connected", "connected"));
  if (!Socket("::1", testing::free_port()).listen()) GTEST_SKIP() << "this machine has no IPv6";
  EXPECT_THAT(attempts(Machines::kOne, "::1", {"::1", "127.0.0.1"}, "::1"),
              ::testing::ElementsAre("connected", kRefused));
}

/// Returns a job of one machine with two ranks.
Job one_machine(int port) {
  Job job;
  job.world_size = 2;
  job.local_size = 2;
  job.master_addr = "127.0.0.1";
  job.master_port = port;
  return job;
}

// Debian maps a machine's own name to 127.0.1.1, which ranks of other machines do not use.
TEST(Rendezvous, IsOpenToOtherMachinesIfTheNameMeansOnlyThisOne) {
  Job job = one_machine(testing::free_port());
  job.master_addr = "LOCALHOST";
  EXPECT_EQ(listen_for_ranks(job).place, "127.0.0.1");
  job.local_size = 1;  // not known to be one machine
  const Listener open = listen_for_ranks(job);
  EXPECT_EQ(open.place, "all addresses of this machine");
  EXPECT_EQ(Socket(net::numeric_host(open.address), job.master_port).connect(), "connected");
}

/// Returns the error of rank 0 of two.
std::string error_of_rank_0(const std::string& master_addr, int port = 0,
                            const std::string& listen_addr = "") {
  const auto outcomes = fork_ranks(1, [&](int) {
    env::set("MASTER_ADDR", master_addr);
    env::set("WORLD_SIZE", "2");
    env::set("LOCAL_SIZE", "1");
    if (port != 0) env::set("MASTER_PORT", std::to_string(port));
    if (!listen_addr.empty()) env::set("DEEPSPEED_LISTEN_ADDR", listen_addr);
    return error_of<CommError>([] { join_world(2s); });
  });
  return outcomes[0].value;
}

TEST(Rendezvous, RefusesAnAddressOfAnotherMachineWithTheWayOut) {
  EXPECT_THAT(error_of_rank_0("192.0.2.1"),
              AllOf(HasSubstr("192.0.2.1"), HasSubstr("no address of this machine"), HasSubstr("MASTER_ADDR"),
                    HasSubstr("DEEPSPEED_LISTEN_ADDR")));
  EXPECT_THAT(error_of_rank_0("127.0.0.1", 0, "192.0.2.1"),
              AllOf(HasSubstr("DEEPSPEED_LISTEN_ADDR"), HasSubstr("192.0.2.1")));
  EXPECT_THAT(error_of_rank_0("no-such-host.invalid"), HasSubstr("no-such-host.invalid"));
}

TEST(Rendezvous, NamesAPortThatIsTaken) {
  const int port = testing::free_port();
  const auto is_error =
      AllOf(HasSubstr("port " + std::to_string(port)), HasSubstr("is taken"), HasSubstr("MASTER_PORT"));
  {
    const Listener job = listen_on_this_machine(one_machine(port));
    EXPECT_THAT(error_of_rank_0("127.0.0.1", port), is_error);
    // The search for a free port finds another one, although nobody listens there.
    EXPECT_FALSE(Socket("127.0.0.1", port).listen());
    EXPECT_EQ(Socket("127.0.0.1", port).connect(), kRefused);
  }
  const Socket other("127.0.0.1", port);
  ASSERT_TRUE(other.listen());
  EXPECT_THAT(error_of_rank_0("127.0.0.1", port, "127.0.0.1"), is_error);
}

// The port may be taken, for example by torchrun's own store.
TEST(Rendezvous, NeedsNoPortOnOneMachine) {
  const int port = testing::free_port();
  const Socket other("127.0.0.1", port);
  ASSERT_TRUE(other.listen());
  const auto outcomes = fork_ranks(2, [&](int) {
    env::set("MASTER_PORT", std::to_string(port));
    return std::to_string(join_world().size());
  });
  EXPECT_EQ(outcomes[0].value, "2");
}

TEST(Rendezvous, TellsJobsOfTorchrunApart) {
  const int port = testing::free_port();
  const auto name = [&](const char* run, const char* restarts) {
    env::set("TORCHELASTIC_RUN_ID", run);
    env::set("TORCHELASTIC_RESTART_COUNT", restarts);
    const auto address = local_address(one_machine(port));
    return std::string(reinterpret_cast<const char*>(&address.address), address.length);
  };
  const auto first = name("a", "0");
  EXPECT_EQ(name("a", "0"), first);
  EXPECT_NE(name("b", "0"), first);
  EXPECT_NE(name("a", "1"), first);
  for (const char* variable : {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"})
    env::set(variable, std::nullopt);
}

// torchrun's agent keeps the store and its keys when it restarts the ranks.
TEST(Rendezvous, StartsAgainInTheStoreOfTorchrunsAgent) {
  const auto own = own_address_towards("192.0.2.1");
  if (!own || own->starts_with("127.")) GTEST_SKIP() << "this machine is in no network";
  c10d::TCPStoreOptions options;
  options.port = 0;  // any
  options.isServer = true;
  options.waitWorkers = false;
  const auto agent = c10::make_intrusive<c10d::TCPStore>(*own, options);
  for (int start = 0; start < 3; ++start) {
    const auto outcomes = fork_ranks(3, [&](int rank) {
      env::set("TORCHELASTIC_USE_AGENT_STORE", "True");
      env::set("TORCHELASTIC_RUN_ID", "run");
      env::set("TORCHELASTIC_RESTART_COUNT", rank == 0 ? "0" : std::to_string(start));  // as agents count
      env::set("MASTER_ADDR", *own);
      env::set("MASTER_PORT", std::to_string(agent->getPort()));
      env::set("LOCAL_SIZE", std::nullopt);
      if (rank == start) std::this_thread::sleep_for(200ms);  // earlier starts have left their keys
      const auto world = join_world();
      at::Tensor sum = at::ones({1});
      world.group().all_reduce(sum);
      return std::to_string(sum.item<float>());
    });
    for (const auto& outcome : outcomes) EXPECT_EQ(outcome.value, "3.000000") << start;
  }
}

// The store of the previous job exists until its rank leaves, while the others are already further.
TEST(Rendezvous, IsNotMistakenForAnEarlierOne) {
  const auto outcomes = fork_ranks(3, [](int rank) {
    std::string sizes;
    std::vector<World> held;  // a world that was left still exists, as with an engine that a script keeps
    for (int times = 0; times < 5; ++times) {
      const auto world = held.emplace_back(join_world());
      world.group().barrier();
      if (rank == 0) std::this_thread::sleep_for(50ms);
      destroy_process_group();
      sizes += std::to_string(world.size());
    }
    return sizes;
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.value, "33333");
}

TEST(Rendezvous, NamesTheVariablesIfARankMistakesTheKindOfJob) {
  const auto outcomes = fork_ranks(2, [](int rank) {
    if (rank == 0) env::set("DEEPSPEED_LISTEN_ADDR", "127.0.0.1");
    return error_of<CommError>([] { join_world(2s); });
  });
  EXPECT_THAT(outcomes[0].value, HasSubstr("no sign of rank(s) 1"));
  EXPECT_THAT(outcomes[1].value,
              AllOf(HasSubstr("rank 0 does not answer"), HasSubstr("LOCAL_SIZE"),
                    HasSubstr("MASTER_PORT and DEEPSPEED_LISTEN_ADDR to the same values")));
}

TEST(Rendezvous, SaysThatAnotherUserHoldsItsName) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const int port = testing::free_port();
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const auto address = local_address(one_machine(port));
  const pid_t squatter = ::fork();
  if (squatter == 0) {
    if (::setuid(65534) != 0) ::_exit(1);
    const auto socket = net::listen_at(address);
    static_cast<void>(!::write(ready[1], "x", 1));
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const auto outcomes = fork_ranks(2, [&](int) {
    env::set("MASTER_PORT", std::to_string(port));
    return error_of<CommError>([] { join_world(2s); });
  });
  for (const auto& outcome : outcomes)
    EXPECT_THAT(outcome.value,
                AllOf(HasSubstr("another user of this machine (uid 65534)"), HasSubstr("MASTER_PORT")));
  ::kill(squatter, SIGKILL);
  ::waitpid(squatter, nullptr, 0);
  for (const int end : ready) ::close(end);
}

}  // namespace
}  // namespace deepspeed::comm
