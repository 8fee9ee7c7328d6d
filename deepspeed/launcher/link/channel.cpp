#include "deepspeed/launcher/link/channel.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
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

void make_non_blocking(int fd) { ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK); }

}  // namespace

Channel::Channel(int read_fd, int write_fd) : read_fd_(read_fd), write_fd_(write_fd) {
  make_non_blocking(read_fd_);
  make_non_blocking(write_fd_);
}

Channel::~Channel() { close(); }

Channel::Channel(Channel&& other) noexcept
    : read_fd_(std::exchange(other.read_fd_, -1)),
      write_fd_(std::exchange(other.write_fd_, -1)),
      closed_(std::exchange(other.closed_, true)),
      skips_noise_(other.skips_noise_),
      skipped_bytes_(other.skipped_bytes_),
      noise_(std::move(other.noise_)),
      max_line_(other.max_line_),
      incoming_(std::move(other.incoming_)),
      outgoing_(std::move(other.outgoing_)),
      sent_(std::move(other.sent_)),
      received_(std::move(other.received_)),
      last_heard_(other.last_heard_) {}

Channel& Channel::operator=(Channel&& other) noexcept {
  if (this == &other) return *this;
  close();
  read_fd_ = std::exchange(other.read_fd_, -1);
  write_fd_ = std::exchange(other.write_fd_, -1);
  closed_ = std::exchange(other.closed_, true);
  skips_noise_ = other.skips_noise_;
  skipped_bytes_ = other.skipped_bytes_;
  noise_ = std::move(other.noise_);
  max_line_ = other.max_line_;
  incoming_ = std::move(other.incoming_);
  outgoing_ = std::move(other.outgoing_);
  sent_ = std::move(other.sent_);
  received_ = std::move(other.received_);
  last_heard_ = other.last_heard_;
  return *this;
}

void Channel::close() {
  closed_ = true;
  if (read_fd_ >= 0) ::close(read_fd_);
  if (write_fd_ >= 0 && write_fd_ != read_fd_) ::close(write_fd_);
  read_fd_ = write_fd_ = -1;
}

void Channel::send(const Json& message) {
  if (closed_) return;
  const std::string line = message.dump(-1, ' ', false, Json::error_handler_t::replace);
  outgoing_ += sent_.of_next(line) + line + "\n";
  write_some();
}

void Channel::append_poll_entries(std::vector<pollfd>& entries) const {
  if (closed_) return;
  entries.push_back({read_fd_, POLLIN, 0});
  if (!outgoing_.empty()) entries.push_back({write_fd_, POLLOUT, 0});
}

void Channel::write_some() {
  while (!closed_ && !outgoing_.empty()) {
    const ssize_t written = ::write(write_fd_, outgoing_.data(), outgoing_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    // The end of the other side is noticed by reading, which also gives what it has sent before.
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
  const ssize_t size = ::read(read_fd_, bytes, sizeof(bytes));
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
  const auto kind = message.is_object() ? message.find("t") : message.end();
  if (!message.is_object() || kind == message.end() || !kind->is_string()) return std::nullopt;
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
  bool more = !closed_;
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
  if (has_ended_ || is_wrong || incoming_.size() > max_line_) close();
  return messages;
}

void prepare_socket(int socket) {
  const int on = 1;
  const int idle_s = 2, interval_s = 1, probes = 3, timeout_ms = 8000;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  make_non_blocking(socket);
}

std::chrono::seconds link_timeout() {
  const auto given = env::get_int(kLinkTimeoutVariable);
  if (!given) return std::chrono::seconds(5);
  if (*given < 2 || *given > 86400)
    raise<UsageError>(kLinkTimeoutVariable, " is ", *given, ", expected 2 to 86400 seconds");
  return std::chrono::seconds(*given);
}

}  // namespace deepspeed::launcher
