// Writes and reads go through two buffers. exchange() writes what the descriptor takes, reads what has come,
// and cuts it into lines. Each line is checked against its seal, if there is one, and parsed. The first line
// that is wrong closes the channel.
#include "deepspeed/launcher/link/channel.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/hash.h"

namespace deepspeed::launcher {
namespace {

constexpr size_t kReadBytes = 65536;
constexpr int kReadsAtATime = 16;
constexpr size_t kSealDigits = 32;
constexpr size_t kMaxNoiseBytes = 65536;
constexpr size_t kNoiseKept = 200;

}  // namespace

Channel::Channel(Descriptor read_end, Descriptor write_end)
    : read_end_(std::move(read_end)), write_end_(std::move(write_end)) {
  make_non_blocking(read_end_.get());
  make_non_blocking(write_fd());
}

void Channel::send(const Json& message) {
  if (is_closed()) return;
  const std::string line = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  outgoing_ += sent_.of_next(line) + line + "\n";
  write_some();
}

void Channel::append_poll_entries(std::vector<pollfd>& entries) const {
  if (is_closed()) return;
  entries.push_back({read_end_.get(), POLLIN, 0});
  if (!outgoing_.empty()) entries.push_back({write_fd(), POLLOUT, 0});
}

void Channel::write_some() {
  while (!is_closed() && !outgoing_.empty()) {
    const ssize_t written = ::write(write_fd(), outgoing_.data(), outgoing_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    // Reading notices that the other end is gone, and still returns what it has sent before.
    if (written <= 0) return outgoing_.clear();
    outgoing_.erase(0, static_cast<size_t>(written));
  }
}

void Channel::seal(std::string sending_key, std::string receiving_key) {
  sent_ = {std::move(sending_key), 0};
  received_ = {std::move(receiving_key), 0};
}

std::string Channel::Seal::of_next(std::string_view line) {
  if (key.empty()) return "";
  const std::string numbered = std::to_string(count++) + ":" + std::string(line);
  return hex(hmac_sha256(key, numbered)).substr(0, kSealDigits);
}

bool Channel::read_some() {
  char bytes[kReadBytes];
  const ssize_t size = ::read(read_end_.get(), bytes, sizeof(bytes));
  if (size < 0 && errno == EINTR) return true;
  if (size < 0 && errno == EAGAIN) return false;
  if (size <= 0) {
    has_ended_ = true;
    return false;
  }
  last_heard_ = Clock::now();
  incoming_.append(bytes, static_cast<size_t>(size));
  return static_cast<size_t>(size) == sizeof(bytes);
}

std::optional<Json> Channel::message_of(std::string_view line) {
  if (!received_.key.empty()) {
    if (line.size() < kSealDigits) return std::nullopt;
    const std::string_view text = line.substr(kSealDigits);
    if (!equal_in_constant_time(line.substr(0, kSealDigits), received_.of_next(text))) return std::nullopt;
    line = text;
  }
  Json message = Json::parse(line.begin(), line.end(), nullptr, false);
  if (kind_of(message).empty()) return std::nullopt;
  return message;
}

bool Channel::may_skip(std::string_view line) {
  skipped_bytes_ += line.size() + 1;
  if (!skips_noise_ || skipped_bytes_ > kMaxNoiseBytes) return false;
  if (!line.empty() && noise_.size() < kNoiseKept) noise_ += (noise_.empty() ? "" : "\n") + std::string(line);
  noise_.resize(std::min(noise_.size(), kNoiseKept));
  return true;
}

std::vector<Json> Channel::exchange() {
  std::vector<Json> messages;
  write_some();
  bool more = !is_closed();
  for (int reads = 0; more && reads < kReadsAtATime; ++reads) more = read_some();
  size_t begin = 0;
  bool is_wrong = false;
  for (size_t end; !is_wrong && (end = incoming_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    auto message = end - begin > max_line_
                       ? std::nullopt
                       : message_of(std::string_view(incoming_).substr(begin, end - begin));
    if (!message && may_skip(std::string_view(incoming_).substr(begin, end - begin))) continue;
    is_wrong = !message;
    skips_noise_ = false;
    if (message) messages.push_back(*std::move(message));
  }
  incoming_.erase(0, begin);
  if (is_wrong || incoming_.size() > max_line_) {
    close("it has sent a line that is no message, or is too long");
  } else if (has_ended_) {
    close(incoming_.empty() ? "" : "its connection ended in the middle of a message");
  }
  return messages;
}

void Channel::close(const std::string& fault) {
  if (!fault.empty()) fault_ = fault;
  read_end_.close();
  write_end_.close();
}

void prepare_socket(const Descriptor& socket) {
  const int fd = socket.get();
  const int on = 1;
  const int idle_s = 2, interval_s = 1, probes = 3, timeout_ms = 8000;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  make_non_blocking(fd);
}

std::chrono::seconds link_timeout() {
  const auto given = env::get_int(kLinkTimeoutVariable);
  if (!given) return std::chrono::seconds(5);
  if (*given < 2 || *given > 86400)
    raise<UsageError>(kLinkTimeoutVariable, " is ", *given, ", expected 2 to 86400 seconds");
  return std::chrono::seconds(*given);
}

}  // namespace deepspeed::launcher
