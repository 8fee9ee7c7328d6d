// Ranks share memory on a machine while another user connects to all their sockets.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <deque>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include <ATen/ATen.h>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "deepspeed/comm/init.h"
#include "deepspeed/comm/shm/descriptor.h"

#include "tests/comm/backends/shared_memory_switch.h"
#include "tests/support/join_world.h"
#include "tests/support/run_ranks.h"

namespace deepspeed::comm {
namespace {

using testing::fork_ranks;
using testing::join_world;
using namespace std::chrono_literals;

/// Acts as another user of the machine, in a thread. It connects to all sockets of ranks that the system
/// lists and keeps the connections. Every other one is silent; the rest send something.
class Stranger {
 public:
  Stranger() : thread_([this] { work(); }) {}
  ~Stranger() {
    ended_.store(true);
    thread_.join();
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  int num_connected() const { return num_connected_.load(); }

 private:
  void work() {
    constexpr uid_t kOtherUser = 54321;
    if (::syscall(SYS_setresuid, kOtherUser, kOtherUser, kOtherUser) != 0) return;  // only for this thread
    std::deque<shm::Descriptor> held;
    while (!ended_.load()) {
      std::ifstream sockets("/proc/net/unix");
      for (std::string line; std::getline(sockets, line);) {
        const size_t begin = line.find("@deepspeed-");
        if (begin == std::string::npos) continue;
        connect(line.substr(begin + 1), held);
        while (held.size() > 200) held.pop_front();
      }
      std::this_thread::sleep_for(200us);
    }
  }

  void connect(const std::string& name, std::deque<shm::Descriptor>& held) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (name.size() + 1 > sizeof(address.sun_path)) return;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    shm::Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) return;
    if (num_connected_.fetch_add(1) % 2 == 1) ::send(socket.get(), name.data(), name.size(), MSG_NOSIGNAL);
    held.push_back(std::move(socket));
  }

  std::atomic<bool> ended_{false};
  std::atomic<int> num_connected_{0};
  std::thread thread_;
};

TEST(SharedMemoryStrangers, OfAnotherUserNeitherHoldUpAJobNorTurnItsSharedMemoryOff) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user of the machine";
  const SharedMemorySwitch on(true);
  const auto outcomes = fork_ranks(3, [](int rank) -> std::string {
    std::optional<Stranger> stranger;
    if (rank == 2) stranger.emplace();
    auto world = join_world();
    EXPECT_EQ(cpu_backend_name(world.group()), "shm");
    int num_groups = 0, num_connected = 0;
    // Each group is a separate meeting.
    for (; num_connected < 50 && num_groups < 500; ++num_groups) {
      const auto group = world.new_group({0, 1, 2}, "group" + std::to_string(num_groups));
      EXPECT_EQ(cpu_backend_name(group), "shm");
      const at::Tensor sum = at::ones({100'000});
      group.all_reduce(sum);
      EXPECT_EQ(sum.sum().item<double>(), 300'000.0);
      num_connected = static_cast<int>(group.all_reduce_scalar(stranger ? stranger->num_connected() : 0));
    }
    EXPECT_GE(num_connected, 50);
    world.shutdown();
    return "";
  });
  for (const auto& outcome : outcomes)
    EXPECT_TRUE(outcome.ok()) << ::testing::PrintToString(outcome.failures);
}

}  // namespace
}  // namespace deepspeed::comm
