// Orders and answers go over a pair of sockets for each rank: eight bytes of length, then the text.
#include "tests/support/standing_ranks.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/join_world.h"
#include "tests/support/rank_process.h"

namespace deepspeed::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kHangLimit = std::chrono::minutes(3);

bool send_text(int socket, const std::string& text) {
  const uint64_t length = text.size();
  return write_all(socket, std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text);
}

// Returns false at the end of what the other side sends, and where the time is up.
bool read_bytes(int socket, char* bytes, size_t count, std::optional<Clock::time_point> deadline) {
  for (size_t done = 0; done < count;) {
    pollfd waiting{socket, POLLIN, 0};
    if (deadline && Clock::now() >= *deadline) return false;
    if (::poll(&waiting, 1, deadline ? 100 : -1) <= 0) continue;
    const auto read = ::read(socket, bytes + done, count - done);
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return false;
    done += static_cast<size_t>(read);
  }
  return true;
}

std::optional<std::string> read_text(int socket, std::optional<Clock::time_point> deadline) {
  uint64_t length = 0;
  if (!read_bytes(socket, reinterpret_cast<char*>(&length), sizeof(length), deadline)) return std::nullopt;
  std::string text(length, '\0');
  if (!read_bytes(socket, text.data(), text.size(), deadline)) return std::nullopt;
  return text;
}

void serve(int socket, const StandingRanks::Work& work) {
  std::optional<comm::World> world;
  while (const auto order = read_text(socket, std::nullopt)) {
    const std::string report = report_of([&] {
      if (!world) {
        comm::destroy_process_group();  // a world of one that an earlier test left in the parent
        world = join_world(std::chrono::minutes(2));
      }
      return work(*world, *order);
    });
    if (!send_text(socket, report)) return;
  }
}

}  // namespace

StandingRanks::StandingRanks(int world_size, const Work& work) {
  const ReservedPort reserved;
  for (int rank = 0; rank < world_size; ++rank) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
      throw std::runtime_error(std::string("socketpair: ") + std::strerror(errno));
    const pid_t process = fork_rank({rank, world_size, reserved.port()}, [&] { serve(ends[1], work); });
    ::close(ends[1]);
    ranks_.push_back({process, ends[0]});
  }
}

StandingRanks::~StandingRanks() {
  for (const Rank& rank : ranks_) {
    ::kill(rank.process, SIGKILL);
    ::waitpid(rank.process, nullptr, 0);
    ::close(rank.socket);
  }
}

std::vector<std::string> StandingRanks::answers_to(const std::string& order) {
  const auto deadline = Clock::now() + kHangLimit;
  for (const Rank& rank : ranks_) send_text(rank.socket, order);
  std::vector<std::string> answers;
  const int size = static_cast<int>(ranks_.size());
  for (int index = 0; index < size; ++index) {
    const Rank& rank = ranks_[static_cast<size_t>(index)];
    RankOutcome outcome;
    if (const auto report = read_text(rank.socket, deadline)) {
      outcome = outcome_of(*report);
    } else if (Clock::now() >= deadline) {
      print_stacks(rank.process);
      outcome.hung = true;
    } else {
      outcome.failures.emplace_back("it ended before it answered");
    }
    report_to_test({index, size}, outcome);
    is_usable_ = is_usable_ && outcome.ok() && !outcome.hung;
    answers.push_back(std::move(outcome.value));
  }
  return answers;
}

}  // namespace deepspeed::testing
