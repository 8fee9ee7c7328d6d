#include "deepspeed/launcher/link/tcp_link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/hash.h"
#include "deepspeed/launcher/args/numbers.h"

namespace deepspeed::launcher {
namespace {

constexpr auto kProofPatience = std::chrono::seconds(10);
constexpr auto kConnectPatience = std::chrono::seconds(30);
constexpr int kTryMs = 3000;
constexpr auto kLeastTime = std::chrono::seconds(1);
constexpr size_t kMaxCandidates = 256;
constexpr size_t kMaxHandshakeBytes = 4096;
constexpr size_t kSealedLineBytes = size_t{16} << 20;

std::string proof(const std::string& secret, const char* end, const std::string& first,
                  const std::string& second) {
  return hex(hmac_sha256(secret, std::string(end) + ":" + first + ":" + second));
}

std::string text_at(const Json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string address_text(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof(text));
    return text;
  }
  ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text, sizeof(text));
  const std::string found = text;
  return found.starts_with("::ffff:") ? found.substr(7) : found;
}

/// Opens a socket that listens at both families where the machine has both.
int open_listener() {
  const int off = 0;
  int listener = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  if (listener >= 0) {
    ::setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (::bind(listener, reinterpret_cast<const sockaddr*>(&any6), sizeof(any6)) == 0) return listener;
    ::close(listener);
  }
  listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  if (listener >= 0 && ::bind(listener, reinterpret_cast<const sockaddr*>(&any4), sizeof(any4)) == 0)
    return listener;
  if (listener >= 0) ::close(listener);
  return -1;
}

/// Tries one address; a socket that is connected, or -1.
int try_address(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) return -1;
  int connected = -1;
  for (const addrinfo* entry = list; entry != nullptr && connected < 0; entry = entry->ai_next) {
    const int socket = ::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (socket < 0) continue;
    int error = ::connect(socket, entry->ai_addr, entry->ai_addrlen) == 0 ? 0 : errno;
    pollfd out{socket, POLLOUT, 0};
    if (error == EINPROGRESS && ::poll(&out, 1, kTryMs) == 1) {
      socklen_t length = sizeof(error);
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length);
    }
    if (error == 0) {
      connected = socket;
    } else {
      ::close(socket);
    }
  }
  ::freeaddrinfo(list);
  return connected;
}

/// Seals a link whose ends have shown the secret: `first` is the machine's number, `second` the launcher's.
void seal_link(Channel& channel, const std::string& secret, const std::string& first,
               const std::string& second, bool is_machine) {
  const std::string of_machine = hmac_sha256(secret, "from machine:" + first + ":" + second);
  const std::string of_launcher = hmac_sha256(secret, "from launcher:" + first + ":" + second);
  channel.limit_lines(kSealedLineBytes);
  channel.seal(is_machine ? of_machine : of_launcher, is_machine ? of_launcher : of_machine);
}

/// Waits for the next message; nothing where the other end leaves or does not say it in time.
std::optional<Json> next_message(Channel& channel, Channel::Clock::time_point until) {
  while (!channel.is_closed() && Channel::Clock::now() < until) {
    std::vector<pollfd> entries;
    channel.append_poll_entries(entries);
    ::poll(entries.data(), entries.size(), 100);
    auto messages = channel.exchange();
    if (!messages.empty()) return std::move(messages.front());
  }
  return std::nullopt;
}

/// Shows the secret and asks for it; whether the other end knows it.
bool shake_hands(Channel& channel, const std::string& secret) {
  const auto until = Channel::Clock::now() + kProofPatience;
  channel.limit_lines(kMaxHandshakeBytes);
  const auto challenge = next_message(channel, until);
  if (!challenge) return false;
  const std::string theirs = text_at(*challenge, "number");
  const std::string ours = hex(random_bytes(16));
  channel.send({{"t", "proof"}, {"number", ours}, {"proof", proof(secret, "machine", theirs, ours)}});
  const auto answer = next_message(channel, until);
  if (!answer || !equal_in_constant_time(text_at(*answer, "proof"), proof(secret, "launcher", ours, theirs)))
    return false;
  seal_link(channel, secret, ours, theirs, true);
  return true;
}

}  // namespace

LinkListener::LinkListener(std::string secret) : secret_(std::move(secret)), listener_(open_listener()) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  const bool listens = listener_ >= 0 && ::listen(listener_, 1024) == 0 &&
                       ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  if (!listens) {
    const int error = errno;
    if (listener_ >= 0) ::close(listener_);
    raise<IoError>("the launcher cannot listen for the job's machines: ", std::strerror(error));
  }
  prepare_socket(listener_);
  port_ = ntohs(address.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                                             : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

LinkListener::~LinkListener() { ::close(listener_); }

bool LinkListener::has_room() const {
  return candidates_.size() < kMaxCandidates ||
         Channel::Clock::now() - candidates_.front().since > kLeastTime;
}

void LinkListener::append_poll_entries(std::vector<pollfd>& entries) const {
  if (has_room()) entries.push_back({listener_, POLLIN, 0});
  for (const Candidate& candidate : candidates_) candidate.channel.append_poll_entries(entries);
}

void LinkListener::drop_oldest() {
  if (!candidates_.empty()) candidates_.erase(candidates_.begin());
}

void LinkListener::take_connections() {
  while (has_room()) {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    const int socket = ::accept4(listener_, reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC);
    if (socket < 0 && (errno == EMFILE || errno == ENFILE)) drop_oldest();
    if (socket < 0) return;
    prepare_socket(socket);
    if (candidates_.size() >= kMaxCandidates) drop_oldest();
    candidates_.push_back(
        {Channel(socket, socket), hex(random_bytes(16)), address_text(address), Channel::Clock::now()});
    candidates_.back().channel.limit_lines(kMaxHandshakeBytes);
    candidates_.back().channel.send({{"t", "challenge"}, {"number", candidates_.back().number}});
  }
}

std::optional<Json> LinkListener::advance(Candidate& candidate) const {
  auto messages = candidate.channel.exchange();
  for (Json& message : messages) {
    if (candidate.knows_secret) return std::move(message);
    const std::string theirs = text_at(message, "number");
    candidate.knows_secret = equal_in_constant_time(text_at(message, "proof"),
                                                    proof(secret_, "machine", candidate.number, theirs));
    if (!candidate.knows_secret) {
      candidate.channel.close();
      return std::nullopt;
    }
    candidate.channel.send({{"t", "proof"}, {"proof", proof(secret_, "launcher", theirs, candidate.number)}});
    seal_link(candidate.channel, secret_, theirs, candidate.number, false);
  }
  if (Channel::Clock::now() - candidate.since > kProofPatience) candidate.channel.close();
  return std::nullopt;
}

std::vector<LinkListener::Guest> LinkListener::accept() {
  take_connections();
  std::vector<Guest> guests;
  for (Candidate& candidate : candidates_) {
    if (auto hello = advance(candidate))
      guests.push_back({std::move(candidate.channel), *std::move(hello), candidate.address});
  }
  std::erase_if(candidates_, [](const Candidate& candidate) { return candidate.channel.is_closed(); });
  return guests;
}

Channel connect_to_launcher(const CarriedJob& job, const Json& hello) {
  const auto until = Channel::Clock::now() + kConnectPatience;
  do {
    for (const std::string& address : job.addresses) {
      const int socket = try_address(address, job.port);
      if (socket < 0) continue;
      prepare_socket(socket);
      Channel channel(socket, socket);
      if (!shake_hands(channel, job.secret)) continue;
      channel.send(hello);
      return channel;
    }
    ::poll(nullptr, 0, 200);
  } while (Channel::Clock::now() < until);
  raise<IoError>("the launcher cannot be reached at port ", job.port, " of ", join(job.addresses, ", "),
                 "; let the machines of the job connect to the one that starts it");
}

}  // namespace deepspeed::launcher
