// A wait spins, then sleeps on the counter. Between sleeps it checks the control block for ranks that gave
// up, and the peers' sockets for processes that ended. Whatever comes first ends the wait.
#include "deepspeed/comm/shm/member.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "deepspeed/base/message.h"
#include "deepspeed/comm/shm/lost_rank.h"

namespace deepspeed::comm::shm {
namespace {

// Returns the other end's credentials, which the system recorded at connect() or listen().
std::optional<ucred> credentials_of(int socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return std::nullopt;
  return credentials;
}

}  // namespace

bool is_of_this_user(const Descriptor& socket, std::string* user) {
  const auto credentials = credentials_of(socket.get());
  if (user != nullptr) *user = credentials ? std::to_string(credentials->uid) : "unknown";
  return credentials && credentials->uid == ::geteuid();
}

Peer::Peer(Descriptor socket, std::shared_ptr<Mapping> arena)
    : socket_(std::move(socket)), arena_(std::move(arena)) {
  if (const auto credentials = credentials_of(socket_.get())) process_ = credentials->pid;
#ifdef SYS_pidfd_open
  if (process_ > 0) process_handle_ = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, process_, 0)));
#endif
}

bool Peer::is_gone() const {
  pollfd asked[2] = {{socket_.get(), POLLRDHUP, 0}, {process_handle_.get(), POLLIN, 0}};
  if (::poll(asked, process_handle_ ? 2 : 1, 0) <= 0) return false;
  return (asked[0].revents & (POLLHUP | POLLRDHUP | POLLERR)) != 0 || (asked[1].revents & POLLIN) != 0;
}

void Peer::hang_up() const {
  if (socket_) ::shutdown(socket_.get(), SHUT_RDWR);
}

namespace {

// A sleeper checks this often for ended processes, which do not wake it.
constexpr std::chrono::milliseconds kBetweenLooks(100);

}  // namespace

Member::Member(Parts parts)
    : parts_(std::move(parts)), slot_(parts_.control->data(), size()), process_(::getpid()) {}

bool Member::is_child() const { return ::getpid() != process_; }

Member::~Member() {
  if (is_child()) return;
  leave();
  for (const Peer& peer : parts_.peers) peer.hang_up();
}

void Member::leave() {
  if (is_child()) return;
  own().leave_as(Presence::kLeft);
  slot_.wake_all();
}

std::string Member::describe(int rank) const {
  return message("rank ", name_of(rank), " (process ", peer(rank).process(), ")");
}

void Member::wait(Counter& counter, uint32_t value, uint32_t operation, Clock::time_point deadline) {
  if (counter.spin_until(value)) return;
  while (!counter.sleep_until(value, kBetweenLooks)) {
    look_around(operation, deadline);
  }
}

void Member::wait_for_the_end(uint32_t operation, Clock::time_point deadline) {
  while (true) {
    Counter& own_count = own().done;
    own_count.sleep_until(own_count.value.load() + 1, kBetweenLooks);
    look_around(operation, deadline);
  }
}

void Member::look_around(uint32_t operation, Clock::time_point deadline) {
  if (gave_up_.load()) throw CommError("the group was given up");
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == parts_.rank || slot_.of(rank).done.reached(operation)) continue;
    check_peer(rank);
  }
  if (Clock::now() < deadline) return;
  const std::string who = missing(operation);
  throw CommError(who.empty() ? "the time is over" : message("the time is over: ", who, " did not come"));
}

void Member::check_peer(int rank) {
  RankBlock& block = slot_.of(rank);
  const bool is_gone = peer(rank).is_gone();  // first, so that what it wrote before its end is visible
  const auto presence = block.presence_after_reading();
  const int blamed = block.blamed_rank.load();
  if (presence == Presence::kGaveUp && std::ranges::find(parts_.names, blamed) != parts_.names.end()) {
    const int name = blamed, process = block.blamed_process.load();
    lose(name, process,
         message("rank ", name, " (process ", process, ") died, reported by ", describe(rank)));
  }
  const int name = name_of(rank), process = peer(rank).process();
  if (presence == Presence::kGaveUp) lose(-1, 0, message(describe(rank), " gave up the group"));
  if (presence == Presence::kLeft) lose(-1, 0, message(describe(rank), " left the group"));
  if (is_gone) lose(name, process, message(describe(rank), " died"));
}

void Member::lose(int name, int process, const std::string& text) {
  tell_end(name, process);
  if (name < 0) throw CommError(text);
  throw LostRank(text, name, process);
}

void Member::tell_end(int blamed_rank, int blamed_process) {
  RankBlock& block = own();
  if (block.presence.load() == Presence::kHere) {
    block.blamed_process.store(blamed_process);
    block.blamed_rank.store(blamed_rank);
    block.leave_as(Presence::kGaveUp);
  }
  slot_.wake_all();
}

void Member::give_up() {
  if (is_child() || gave_up_.exchange(true)) return;
  tell_end(-1, 0);
}

std::string Member::missing(uint32_t operation) const {
  std::string text;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == parts_.rank || slot_.of(rank).posted.reached(operation)) continue;
    text += (text.empty() ? "" : ", ") + describe(rank);
  }
  return text;
}

}  // namespace deepspeed::comm::shm
