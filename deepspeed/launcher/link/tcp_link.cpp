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

#include <sys/socket.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/link/abandoned.h"
#include "deepspeed/net/socket.h"

namespace deepspeed::launcher {
namespace {

constexpr auto kPatienceForALauncher = std::chrono::seconds(10);
constexpr size_t kMaxCandidates = 256;
constexpr size_t kMaxHandshakeBytes = 4096;
constexpr size_t kSealedLineBytes = size_t{16} << 20;

/// Returns the prover of links between a job's machines.
net::Prover link_prover(const std::string& secret) { return {secret, "link"}; }

/// Returns a host's numeric address without its scope, such as "%eth0". IPv4 within IPv6 becomes IPv4.
std::string address_text(const net::SocketAddress& address) {
  const std::string text = net::numeric_host(address);
  return text.starts_with("::ffff:") ? text.substr(7) : text.substr(0, text.find('%'));
}

/// Seals a link after both proofs. `own` is this end.
void seal_link(Channel& channel, const net::Prover& prover, net::End own, const net::ProofNumbers& numbers) {
  const net::End other = own == net::End::kServer ? net::End::kClient : net::End::kServer;
  channel.limit_lines(kSealedLineBytes);
  channel.seal(prover.key(own, numbers), prover.key(other, numbers));
}

/// Holds an attempt to reach the launcher. It may fail, or reach a foreign process.
struct Attempt {
  Channel channel;
  net::ProofNumbers numbers;
};

/// Answers a Challenge, and checks the launcher's own Proof. Returns true, with the link sealed, once that
/// proof is right. Any other message closes the channel.
bool advance_attempt(Attempt& attempt, const net::Prover& prover) {
  auto& [channel, numbers] = attempt;
  for (const Json& message : channel.exchange()) {
    if (const auto challenge = as<Challenge>(message); challenge && numbers.client.empty()) {
      numbers = {net::random_number(), challenge->number};
      channel.send(Proof{numbers.client, prover.proof(net::End::kClient, numbers)});
      continue;
    }
    const auto answer = as<Proof>(message);
    const bool knows_secret =
        answer && !numbers.client.empty() && prover.is_proof(answer->proof, net::End::kServer, numbers);
    if (knows_secret) seal_link(channel, prover, net::End::kClient, numbers);
    if (!knows_secret) channel.close();
    return knows_secret;
  }
  return false;
}

/// Tries all addresses at once. Returns the first link that proves the secret, or nothing if none does.
std::optional<Channel> try_addresses(const CarriedJob& job) {
  const net::Prover prover = link_prover(job.secret);
  std::vector<Attempt> attempts;
  for (const std::string& address : job.addresses) {
    const auto found = net::numeric_address(address, job.port);
    Descriptor socket = found ? net::begin_to_connect(*found) : Descriptor();
    if (!socket) continue;
    prepare_socket(socket);
    attempts.push_back({Channel(std::move(socket)), {}});
    attempts.back().channel.limit_lines(kMaxHandshakeBytes);
  }
  const auto until = Channel::Clock::now() + kPatienceForALauncher;
  while (!attempts.empty() && Channel::Clock::now() < until && !is_abandoned()) {
    std::vector<pollfd> entries;
    for (const Attempt& attempt : attempts) attempt.channel.append_poll_entries(entries);
    ::poll(entries.data(), entries.size(), 100);
    for (Attempt& attempt : attempts) {
      try {
        if (advance_attempt(attempt, prover)) return std::move(attempt.channel);
      } catch (const MessageError&) {
        attempt.channel.close();
      }
    }
    std::erase_if(attempts, [](const Attempt& attempt) { return attempt.channel.is_closed(); });
  }
  return std::nullopt;
}

}  // namespace

LinkListener::LinkListener(const std::string& secret) : prover_(link_prover(secret)), gate_(kMaxCandidates) {
  for (const net::SocketAddress& address : net::all_addresses(/*port=*/0)) {
    if (!listener_) listener_ = net::listen_at(address);
  }
  if (!listener_) raise<IoError>("the launcher cannot listen for the job's machines: ", std::strerror(errno));
  prepare_socket(listener_);
  port_ = net::port_of(net::own_address(listener_.get()));
}

bool LinkListener::has_room() const { return !gate_.is_full() || gate_.to_make_room(); }

void LinkListener::append_poll_entries(std::vector<pollfd>& entries) const {
  if (has_room()) entries.push_back({listener_.get(), POLLIN, 0});
  for (const auto& [id, candidate] : candidates_) candidate.channel.append_poll_entries(entries);
}

void LinkListener::drop(uint64_t id) {
  gate_.leave(id);
  candidates_.erase(id);
}

void LinkListener::take_connections() {
  while (has_room()) {
    net::SocketAddress address;
    address.length = sizeof(address.address);
    Descriptor socket(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address.address),
                                &address.length, SOCK_CLOEXEC));
    const bool lacks_descriptors = !socket && (errno == EMFILE || errno == ENFILE);
    if (lacks_descriptors && !candidates_.empty()) drop(candidates_.begin()->first);
    if (!socket) return;
    prepare_socket(socket);
    if (gate_.is_full()) drop(*gate_.to_make_room());
    const uint64_t id = next_id_++;
    gate_.enter(id);
    Candidate& candidate = candidates_[id];
    candidate.channel = Channel(std::move(socket));
    candidate.numbers.server = net::random_number();
    candidate.address = address_text(address);
    candidate.channel.limit_lines(kMaxHandshakeBytes);
    candidate.channel.send(Challenge{candidate.numbers.server});
  }
}

std::optional<Hello> LinkListener::advance(Candidate& candidate) const {
  auto& [channel, numbers, address, knows_secret] = candidate;
  for (const Json& message : channel.exchange()) {
    if (knows_secret) {
      auto hello = as<Hello>(message);
      if (!hello) channel.close();
      return hello;
    }
    const auto shown = as<Proof>(message);
    if (shown) numbers.client = shown->number;
    knows_secret = shown && prover_.is_proof(shown->proof, net::End::kClient, numbers);
    if (!knows_secret) {
      channel.close();
      return std::nullopt;
    }
    channel.send(Proof{"", prover_.proof(net::End::kServer, numbers)});
    seal_link(channel, prover_, net::End::kServer, numbers);
  }
  return std::nullopt;
}

std::vector<LinkListener::Guest> LinkListener::accept() {
  take_connections();
  std::vector<Guest> guests;
  std::vector<uint64_t> gone;
  for (auto& [id, candidate] : candidates_) {
    try {
      if (auto hello = advance(candidate))
        guests.push_back({std::move(candidate.channel), *std::move(hello), candidate.address});
    } catch (const MessageError&) {
      candidate.channel.close();
    }
    if (candidate.channel.is_closed()) gone.push_back(id);
  }
  for (const uint64_t id : gone) drop(id);
  while (const auto late = gate_.overdue()) drop(*late);
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
