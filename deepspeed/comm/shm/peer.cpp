#include "deepspeed/comm/shm/peer.h"

#include <optional>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace deepspeed::comm::shm {
namespace {

// As the system knows them: of whom connected, or of whom listened.
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

}  // namespace deepspeed::comm::shm
