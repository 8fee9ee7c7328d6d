// Ranks meet through torchrun's store but lose new connections. Only this library writes to standard error.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/comm/init.h"
#include "deepspeed/comm/job/address_list.h"

#include "tests/support/error_of.h"
#include "tests/support/join_world.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::comm {
namespace {

using ::testing::AllOf;
using testing::error_of;
using testing::fork_ranks;
using ::testing::HasSubstr;
using testing::join_world;
using ::testing::Not;
using namespace std::chrono_literals;

sockaddr_in address_of(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

void pass_on(int from, int to) {
  char buffer[4096];
  for (ssize_t count = 0; (count = ::read(from, buffer, sizeof(buffer))) > 0;) {
    if (::send(to, buffer, static_cast<size_t>(count), MSG_NOSIGNAL) != count) break;
  }
  ::shutdown(to, SHUT_WR);
}

/// Forwards connections at its own port to another port of the host. lets_down() tells whether to close the
/// nth (from 0) at once. Exists as long as its process.
class LossyWay {
 public:
  LossyWay(const std::string& host, int to, std::function<bool(int)> lets_down)
      : listener_(::socket(AF_INET, SOCK_STREAM, 0)) {
    auto address = address_of(host, 0);
    socklen_t size = sizeof(address);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    ::listen(listener_, 16);
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    std::thread([listener = listener_, target = address_of(host, to), lets_down = std::move(lets_down)] {
      for (int number = 0;; ++number) {
        const int client = ::accept(listener, nullptr, nullptr);
        if (lets_down(number)) {
          ::close(client);
          continue;
        }
        std::thread([client, target] {
          const int server = ::socket(AF_INET, SOCK_STREAM, 0);
          if (::connect(server, reinterpret_cast<const sockaddr*>(&target), sizeof(target)) != 0) return;
          std::thread(pass_on, client, server).detach();
          pass_on(server, client);
        }).detach();
      }
    }).detach();
  }
  int port() const { return port_; }

 private:
  int listener_, port_ = 0;
};

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

/// Waits for a file that another rank writes, and returns its content.
std::string awaited(const std::filesystem::path& file) {
  while (!std::filesystem::exists(file)) std::this_thread::sleep_for(10ms);
  return text_of(file);
}

struct LossyOutcome {
  std::string error, standard_error;
};

/// Lets two ranks meet at a third process's store and make an own group. The store is like that of torchrun's
/// agent. Rank 1 reaches the store on a way that loses connections; the group's is the third. Returns rank
/// 1's output.
LossyOutcome over_a_lossy_way(const std::string& host, std::chrono::milliseconds timeout,
                              std::function<bool(int)> lets_down) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path path = folder.path();
  const auto tell = [&](const std::string& name, const std::string& text) {
    std::ofstream(path / "new") << text;
    std::filesystem::rename(path / "new", path / name);
  };
  const auto outcomes = fork_ranks(3, [&](int rank) -> std::string {
    if (rank == 2) {
      c10d::TCPStoreOptions options;
      options.isServer = true;
      options.port = 0;
      options.waitWorkers = false;
      const auto store = c10::make_intrusive<c10d::TCPStore>(host, options);
      const LossyWay way(host, store->getPort(), lets_down);
      tell("ports", std::to_string(store->getPort()) + " " + std::to_string(way.port()));
      awaited(path / "end");
      std::_Exit(0);
    }
    std::istringstream ports(awaited(path / "ports"));
    std::string port;
    for (int i = 0; i <= rank; ++i) ports >> port;
    env::set("MASTER_ADDR", host);
    env::set("MASTER_PORT", port);
    env::set("WORLD_SIZE", std::string("2"));
    env::set("LOCAL_SIZE", std::nullopt);
    env::set("TORCHELASTIC_USE_AGENT_STORE", std::string("True"));
    if (rank == 0) {
      auto world = join_world();
      const std::string error = error_of<CommError>([&] { world.own_group("engine").barrier(); });
      awaited(path / "end");
      return error;
    }
    const int file = ::open((path / "stderr").c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(file, STDERR_FILENO);
    auto world = join_world(timeout);
    const std::string error = error_of<CommError>([&] { world.own_group("engine").barrier(); });
    ::fsync(file);
    tell("end", "");
    return error;
  });
  return {outcomes[1].value, text_of(path / "stderr")};
}

/// Counts rank 1's first connections: its own, and one from which others are cloned.
constexpr int kFirstConnections = 2;

class LossyStore : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto own = own_address_towards("192.0.2.1");
    if (!own || own->starts_with("127.")) GTEST_SKIP() << "this machine is in no network";
    host_ = *own;
  }
  std::string host_;
};

TEST_F(LossyStore, ThatAnswersAtTheSecondTryIsWorthNoWord) {
  const auto outcome = over_a_lossy_way(host_, 10min, [](int number) { return number == kFirstConnections; });
  EXPECT_EQ(outcome.error, "no error");
  EXPECT_EQ(outcome.standard_error, "");
}

TEST_F(LossyStore, ThatIsNotReachedAgainIsAnErrorWithoutTracesOfTheBackend) {
  const auto outcome = over_a_lossy_way(host_, 8s, [](int number) { return number >= kFirstConnections; });
  EXPECT_THAT(outcome.error, AllOf(HasSubstr("the store where ranks meet, cannot be reached"),
                                   HasSubstr("group 'engine'"), HasSubstr("it ended or left the job"),
                                   Not(HasSubstr("Exception raised from")), Not(HasSubstr("frame #"))));
  EXPECT_EQ(outcome.standard_error, "");
}

}  // namespace
}  // namespace deepspeed::comm
