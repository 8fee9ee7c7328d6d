// The launcher listens (LinkListener) and a program connects (connect_to_launcher):
//
// 1. The launcher sends Challenge with a random number.
// 2. The program answers Proof with its own number, and an HMAC of both with the job's secret.
// 3. The launcher answers Proof with its HMAC. Both ends seal the link.
// 4. The program sends Hello. Only now the launcher takes the link.
#include "deepspeed/launcher/link/tcp_link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/hash.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/link/abandoned.h"

namespace deepspeed::launcher {
namespace {

constexpr auto kProofPatience = std::chrono::seconds(10);
constexpr auto kLeastTime = std::chrono::seconds(1);
constexpr size_t kMaxCandidates = 256;
constexpr size_t kMaxHandshakeBytes = 4096;
constexpr size_t kSealedLineBytes = size_t{16} << 20;

std::string proof(const std::string& secret, const char* end, const std::string& first,
                  const std::string& second) {
  return hex(hmac_sha256(secret, std::string(end) + ":" + first + ":" + second));
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

/// Opens a socket for IPv4 and IPv6, or for IPv4 only.
Descriptor open_listener() {
  const int off = 0;
  Descriptor listener(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  ::setsockopt(listener.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&any6), sizeof(any6)) == 0) return listener;
  listener = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&any4), sizeof(any4)) == 0) return listener;
  return Descriptor();
}

/// Begins to connect to an address. Returns no socket if that fails at once.
Descriptor begin_to_connect(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return Descriptor();
  Descriptor socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool begins = ::connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0 || errno == EINPROGRESS;
  ::freeaddrinfo(found);
  return begins ? std::move(socket) : Descriptor();
}

/// Seals a link after both proofs. `first` is the machine's number, `second` the launcher's.
void seal_link(Channel& channel, const std::string& secret, const std::string& first,
               const std::string& second, bool is_machine) {
  const std::string of_machine = hmac_sha256(secret, "from machine:" + first + ":" + second);
  const std::string of_launcher = hmac_sha256(secret, "from launcher:" + first + ":" + second);
  channel.limit_lines(kSealedLineBytes);
  channel.seal(is_machine ? of_machine : of_launcher, is_machine ? of_launcher : of_machine);
}

/// Holds an attempt to reach the launcher. It may fail, or reach a foreign process.
struct Attempt {
  Channel channel;
  std::string ours, theirs;  ///< random numbers of both ends
};

/// Answers a Challenge, and checks the launcher's own Proof. Returns whether that was right. Any other
/// message closes the channel.
bool advance_attempt(Attempt& attempt, const std::string& secret) {
  for (const Json& message : attempt.channel.exchange()) {
    if (const auto challenge = as<Challenge>(message); challenge && attempt.ours.empty()) {
      attempt.theirs = challenge->number;
      attempt.ours = hex(random_bytes(16));
      attempt.channel.send(Proof{attempt.ours, proof(secret, "machine", attempt.theirs, attempt.ours)});
      continue;
    }
    const auto answer = as<Proof>(message);
    const bool knows_secret =
        answer && !attempt.ours.empty() &&
        equal_in_constant_time(answer->proof, proof(secret, "launcher", attempt.ours, attempt.theirs));
    if (knows_secret) seal_link(attempt.channel, secret, attempt.ours, attempt.theirs, true);
    if (!knows_secret) attempt.channel.close();
    return knows_secret;
  }
  return false;
}

/// Tries all addresses at once. Returns nothing if none leads to the launcher.
std::optional<Channel> try_addresses(const CarriedJob& job) {
  std::vector<Attempt> attempts;
  for (const std::string& address : job.addresses) {
    Descriptor socket = begin_to_connect(address, job.port);
    if (!socket) continue;
    prepare_socket(socket);
    attempts.push_back({Channel(std::move(socket)), "", ""});
    attempts.back().channel.limit_lines(kMaxHandshakeBytes);
  }
  const auto until = Channel::Clock::now() + kProofPatience;
  while (!attempts.empty() && Channel::Clock::now() < until && !is_abandoned()) {
    std::vector<pollfd> entries;
    for (const Attempt& attempt : attempts) attempt.channel.append_poll_entries(entries);
    ::poll(entries.data(), entries.size(), 100);
    for (Attempt& attempt : attempts) {
      try {
        if (advance_attempt(attempt, job.secret)) return std::move(attempt.channel);
      } catch (const MessageError&) {
        attempt.channel.close();
      }
    }
    std::erase_if(attempts, [](const Attempt& attempt) { return attempt.channel.is_closed(); });
  }
  return std::nullopt;
}

}  // namespace

LinkListener::LinkListener(std::string secret) : secret_(std::move(secret)), listener_(open_listener()) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (!listener_ || ::listen(listener_.get(), 1024) != 0 ||
      ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    raise<IoError>("the launcher cannot listen for the job's machines: ", std::strerror(errno));
  prepare_socket(listener_);
  port_ = ntohs(address.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                                             : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
}

bool LinkListener::has_room() const {
  return candidates_.size() < kMaxCandidates ||
         Channel::Clock::now() - candidates_.front().since > kLeastTime;
}

void LinkListener::append_poll_entries(std::vector<pollfd>& entries) const {
  if (has_room()) entries.push_back({listener_.get(), POLLIN, 0});
  for (const Candidate& candidate : candidates_) candidate.channel.append_poll_entries(entries);
}

void LinkListener::drop_oldest() {
  if (!candidates_.empty()) candidates_.erase(candidates_.begin());
}

void LinkListener::take_connections() {
  while (has_room()) {
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    Descriptor socket(
        ::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC));
    if (!socket && (errno == EMFILE || errno == ENFILE)) drop_oldest();
    if (!socket) return;
    prepare_socket(socket);
    if (candidates_.size() >= kMaxCandidates) drop_oldest();
    candidates_.push_back(
        {Channel(std::move(socket)), hex(random_bytes(16)), address_text(address), Channel::Clock::now()});
    candidates_.back().channel.limit_lines(kMaxHandshakeBytes);
    candidates_.back().channel.send(Challenge{candidates_.back().number});
  }
}

std::optional<Hello> LinkListener::advance(Candidate& candidate) const {
  for (const Json& message : candidate.channel.exchange()) {
    if (candidate.knows_secret) {
      auto hello = as<Hello>(message);
      if (!hello) candidate.channel.close();
      return hello;
    }
    const auto shown = as<Proof>(message);
    candidate.knows_secret =
        shown &&
        equal_in_constant_time(shown->proof, proof(secret_, "machine", candidate.number, shown->number));
    if (!candidate.knows_secret) {
      candidate.channel.close();
      return std::nullopt;
    }
    candidate.channel.send(Proof{"", proof(secret_, "launcher", shown->number, candidate.number)});
    seal_link(candidate.channel, secret_, shown->number, candidate.number, false);
  }
  if (Channel::Clock::now() - candidate.since > kProofPatience) candidate.channel.close();
  return std::nullopt;
}

std::vector<LinkListener::Guest> LinkListener::accept() {
  take_connections();
  std::vector<Guest> guests;
  for (Candidate& candidate : candidates_) {
    try {
      if (auto hello = advance(candidate))
        guests.push_back({std::move(candidate.channel), *std::move(hello), candidate.address});
    } catch (const MessageError&) {
      candidate.channel.close();
    }
  }
  std::erase_if(candidates_, [](const Candidate& candidate) { return candidate.channel.is_closed(); });
  return guests;
}

Channel connect_to_launcher(const CarriedJob& job, const Hello& hello, std::chrono::milliseconds patience) {
  const auto until = Channel::Clock::now() + patience;
  do {
    if (auto channel = try_addresses(job)) {
      channel->send(hello);
      return *std::move(channel);
    }
    ::poll(nullptr, 0, 200);
  } while (Channel::Clock::now() < until && !is_abandoned());
  raise<IoError>("the launcher cannot be reached at port ", job.port, " of ", join(job.addresses, ", "),
                 "; let the machines of the job connect to the one that starts it");
}

}  // namespace deepspeed::launcher
