// Who gets into a meeting: another user of the machine, connections that say nothing or lie, and what a rank
// can do with the memory that it is handed.
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <deque>
#include <sstream>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "tests/comm/shm/thread_ranks.h"
#include "tests/support/error_of.h"

namespace deepspeed::comm::shm {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::names_of_ranks;
using testing::run_threads;
using testing::ThreadBoard;

constexpr uid_t kOtherUser = 54321;

/// What a rank says as it meets another one.
struct Greeting {
  uint64_t token = 0;
  uint64_t arena_bytes = 0;
  int32_t rank = 0;
};

/// A connection to the socket that a rank announced on the board.
class Caller {
 public:
  explicit Caller(const std::string& announced) {
    std::istringstream in(announced);
    std::string word, machine;
    std::getline(in, word);
    std::getline(in, machine);
    std::getline(in, name_);
    in >> token;
    socket_ = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name_.data(), name_.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
    is_connected = ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0;
  }

  void say(const void* data, size_t bytes) const { ::send(socket_.get(), data, bytes, MSG_NOSIGNAL); }
  void greet(uint64_t with_token, int rank, const Descriptor* arena = nullptr,
             uint64_t arena_bytes = 0) const {
    Greeting greeting{with_token, arena_bytes, rank};
    iovec data{&greeting, sizeof(greeting)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
    msghdr packet{};
    packet.msg_iov = &data;
    packet.msg_iovlen = 1;
    if (arena != nullptr) {
      packet.msg_control = space.data();
      packet.msg_controllen = space.size();
      cmsghdr* const header = CMSG_FIRSTHDR(&packet);
      header->cmsg_len = CMSG_LEN(sizeof(int));
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      const int fd = arena->get();
      std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
    }
    ::sendmsg(socket_.get(), &packet, MSG_NOSIGNAL);
  }
  /// Waits for an answer, or the end of the connection, and returns the descriptors that came with it.
  std::vector<Descriptor> answer() const {
    pollfd asked{socket_.get(), POLLIN, 0};
    ::poll(&asked, 1, 60000);
    Greeting greeting;
    iovec data{&greeting, sizeof(greeting)};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> space{};
    msghdr packet{};
    packet.msg_iov = &data;
    packet.msg_iovlen = 1;
    packet.msg_control = space.data();
    packet.msg_controllen = space.size();
    std::vector<Descriptor> received;
    if (::recvmsg(socket_.get(), &packet, MSG_CMSG_CLOEXEC) <= 0) return received;
    for (cmsghdr* header = CMSG_FIRSTHDR(&packet); header != nullptr; header = CMSG_NXTHDR(&packet, header)) {
      for (size_t i = 0; i < (header->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        received.emplace_back(fd);
      }
    }
    return received;
  }

  bool is_connected = false;
  uint64_t token = 0;

 private:
  std::string name_;
  Descriptor socket_;
};

/// Makes the calling thread, and no other one, another user of the machine. Returns false where this process
/// may not.
bool become_other_user() { return ::syscall(SYS_setresuid, kOtherUser, kOtherUser, kOtherUser) == 0; }

/// Runs a meeting of `size` threads. at_first: is run once rank 0 has announced its socket, before any rank
/// connects. Returns why the ranks do not share memory.
std::string reason_of_meeting(int size, const std::function<void(const std::string& announced)>& at_first) {
  ThreadBoard texts;
  std::vector<std::string> reasons(static_cast<size_t>(size));
  run_threads(size, [&](int rank) {
    Board board = texts.board();
    const auto set = board.set;
    board.set = [&, set](const std::string& key, const std::string& text) {
      if (key == "comes/0") at_first(text);
      set(key, text);
    };
    MeetingPlan plan;
    plan.rank = rank;
    plan.names = names_of_ranks(size);
    plan.machine = "here";
    plan.arena = Arena::of_process();
    plan.limit = std::chrono::minutes(1);
    auto met = meet(board, std::move(plan));
    reasons[static_cast<size_t>(rank)] = met.reason;
    EXPECT_EQ(met.member != nullptr, met.reason.empty());
  });
  for (const std::string& reason : reasons) EXPECT_EQ(reason, reasons[0]);
  return reasons[0];
}

TEST(Meeting, SendsAnotherUserNothingAndGoesOnWithoutThem) {
  std::vector<std::unique_ptr<Caller>> strangers;
  bool is_possible = false;
  const std::string reason = reason_of_meeting(3, [&](const std::string& announced) {
    std::thread([&] {
      is_possible = become_other_user();
      if (!is_possible) return;
      // One is silent, and some know what only the board tells.
      for (int rank = -1; rank < 3; ++rank) {
        strangers.push_back(std::make_unique<Caller>(announced));
        ASSERT_TRUE(strangers.back()->is_connected);
        if (rank >= 0) strangers.back()->greet(strangers.back()->token, rank);
      }
    }).join();
  });
  if (!is_possible) GTEST_SKIP() << "only root can act as another user of the machine";
  EXPECT_EQ(reason, "");
  for (const auto& stranger : strangers) EXPECT_EQ(stranger->answer().size(), 0U);
}

TEST(Meeting, ConnectsToNoSocketOfAnotherUser) {
  // Whoever can write on the board can give the name of a socket of their own.
  Descriptor listener;
  bool is_possible = false;
  ThreadBoard texts;
  std::vector<std::string> reasons(2);
  run_threads(2, [&](int rank) {
    Board board = texts.board();
    const auto set = board.set;
    board.set = [&, set](const std::string& key, std::string text) {
      if (key == "comes/0") {
        const std::string name = "deepspeed-test-" + std::to_string(::getpid());
        std::thread([&] {
          is_possible = become_other_user();
          listener = Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
          sockaddr_un address{};
          address.sun_family = AF_UNIX;
          std::memcpy(address.sun_path + 1, name.data(), name.size());
          const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
          ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
          ASSERT_EQ(::listen(listener.get(), 8), 0);
        }).join();
        text = "ready\nhere\n" + name + "\n1";
      }
      set(key, text);
    };
    MeetingPlan plan;
    plan.rank = rank;
    plan.names = names_of_ranks(2);
    plan.machine = "here";
    plan.arena = Arena::of_process();
    plan.limit = std::chrono::seconds(2);
    reasons[static_cast<size_t>(rank)] = meet(board, std::move(plan)).reason;
  });
  if (!is_possible) GTEST_SKIP() << "only root can act as another user of the machine";
  EXPECT_THAT(reasons[1], HasSubstr("user " + std::to_string(kOtherUser)));
  Descriptor accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  std::array<char, 64> told{};
  EXPECT_LE(::recv(accepted.get(), told.data(), told.size(), 0), 0);
}

TEST(Meeting, IsNotHeldUpBySilentOrLyingConnections) {
  std::vector<std::unique_ptr<Caller>> liars;
  const auto call = [&](const std::string& announced) -> Caller& {
    liars.push_back(std::make_unique<Caller>(announced));
    return *liars.back();
  };
  EXPECT_EQ(reason_of_meeting(3,
                              [&](const std::string& announced) {
                                for (int i = 0; i < 5; ++i) call(announced);
                                call(announced).say("nonsense", 8);
                                call(announced).say("", 0);
                                const std::vector<char> much(1000, 'x');
                                call(announced).say(much.data(), much.size());
                                call(announced).greet(1, 1);
                                Caller& knowing = call(announced);
                                for (const int rank : {0, -1, 3, 1 << 30, -(1 << 30)}) {
                                  call(announced).greet(knowing.token, rank);
                                }
                                call(announced).greet(knowing.token, 1, nullptr,
                                                      4096);  // without what it speaks of
                              }),
            "");
}

TEST(Meeting, IsNotHeldUpByAFloodOfConnections) {
  std::atomic<bool> ended{false};
  std::thread flood;
  EXPECT_EQ(reason_of_meeting(3,
                              [&](const std::string& announced) {
                                flood = std::thread([&, announced] {
                                  std::deque<std::unique_ptr<Caller>> held;
                                  while (!ended.load()) {
                                    held.push_back(std::make_unique<Caller>(announced));
                                    if (held.size() > 300) held.pop_front();
                                  }
                                });
                              }),
            "");
  ended.store(true);
  flood.join();
}

TEST(Meeting, NamesMissingRanks) {
  ThreadBoard texts;
  texts.board().set("comes/1", "ready\nhere\ndeepspeed-nobody\n1");
  texts.board().set("met/1", "ready");
  MeetingPlan plan;
  plan.names = {4, 7};
  plan.machine = "here";
  plan.limit = std::chrono::milliseconds(50);
  EXPECT_THAT(meet(texts.board(), std::move(plan)).reason,
              HasSubstr("rank 7 of this machine did not connect in time"));
}

/// What rank 0 hands to a rank 1 that this test plays.
std::vector<Descriptor> handed_memory(const Descriptor& own_arena, uint64_t own_bytes, std::string& reason) {
  ThreadBoard texts;
  std::vector<Descriptor> received;
  run_threads(2, [&](int rank) {
    if (rank == 1) {
      const Board board = texts.board();
      const Caller caller(board.get("comes/0"));
      board.set("comes/1", "ready\nhere\ndeepspeed-played\n1");
      caller.greet(caller.token, 1, &own_arena, own_bytes);
      received = caller.answer();
      board.set("met/1", "ready");
      static_cast<void>(board.get("met/0"));
      return;
    }
    MeetingPlan plan;
    plan.names = names_of_ranks(2);
    plan.machine = "here";
    plan.arena = std::make_shared<Arena>(1 << 20);
    plan.limit = std::chrono::minutes(1);
    reason = meet(texts.board(), std::move(plan)).reason;
  });
  return received;
}

TEST(Meeting, SendsReadOnlyArenasThatCannotShrink) {
  std::string reason;
  const Descriptor own = make_memory(1 << 20);
  const auto received = handed_memory(own, 1 << 20, reason);
  EXPECT_EQ(reason, "");
  ASSERT_EQ(received.size(), 2U);  // the arena and the control block
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, received[0].get(), 0), MAP_FAILED);
  void* const read = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, received[0].get(), 0);
  ASSERT_NE(read, MAP_FAILED);
  EXPECT_NE(::mprotect(read, 4096, PROT_READ | PROT_WRITE), 0);
  ::munmap(read, 4096);
  EXPECT_NE(::fallocate(received[0].get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  for (const Descriptor& memory : received) {
    EXPECT_NE(::ftruncate(memory.get(), 0), 0);
    constexpr int kExpected = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    EXPECT_EQ(::fcntl(memory.get(), F_GET_SEALS) & kExpected, kExpected);
  }
}

TEST(Meeting, RefusesMemoryThatItsOwnerCanShrink) {
  std::string reason;
  const Descriptor unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(unsealed.get(), 1 << 20), 0);
  handed_memory(unsealed, 1 << 20, reason);
  EXPECT_THAT(reason, HasSubstr("seal"));
  handed_memory(make_memory(4096), uint64_t{1} << 62, reason);
  EXPECT_THAT(reason, HasSubstr("4096 bytes, expected"));
}

TEST(SharedMemory, CanNeitherShrinkNorGrow) {
  const Descriptor memory = make_memory(1 << 20);
  EXPECT_NE(::ftruncate(memory.get(), 0), 0);
  EXPECT_NE(::ftruncate(memory.get(), 2 << 20), 0);
  EXPECT_TRUE(add_pages(memory, 0, 1 << 20));
  drop_pages(memory, 0, 1 << 20);
  struct stat status {};
  ASSERT_EQ(::fstat(memory.get(), &status), 0);
  EXPECT_EQ(status.st_blocks, 0);  // its owner gives pages back all the same
}

}  // namespace
}  // namespace deepspeed::comm::shm
