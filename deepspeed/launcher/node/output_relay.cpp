#include "deepspeed/launcher/node/output_relay.h"

#include <cerrno>

#include <unistd.h>

namespace deepspeed::launcher {
namespace {

constexpr size_t kChunkBytes = 4096;  // a writable pipe takes this much without waiting
constexpr int kMaxDrainChunks = 256;  // a process that never stops writing must not block the launcher

}  // namespace

OutputRelay::~OutputRelay() {
  for (const Stream& stream : streams_) {
    if (stream.fd >= 0) ::close(stream.fd);
  }
}

void OutputRelay::add(int rank, int fd, const std::string& log_file) {
  streams_.push_back({rank, fd, log_file, LineTail()});
}

void OutputRelay::append_poll_entries(std::vector<pollfd>& entries) const {
  if (blocked_) {
    entries.push_back({STDERR_FILENO, POLLOUT, 0});
    return;
  }
  for (const Stream& stream : streams_) {
    if (stream.fd >= 0) entries.push_back({stream.fd, POLLIN, 0});
  }
}

bool OutputRelay::can_write() const {
  pollfd out{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&out, 1, 0) == 1;
}

void OutputRelay::relay() {
  for (Stream& stream : streams_) {
    blocked_ = !gone_ && !can_write();
    if (blocked_) return;
    read_chunk(stream);
  }
}

void OutputRelay::drain() {
  for (Stream& stream : streams_) {
    for (int chunk = 0; chunk < kMaxDrainChunks && read_chunk(stream); ++chunk) {
    }
  }
}

bool OutputRelay::read_chunk(Stream& stream) {
  if (stream.fd < 0) return false;
  char bytes[kChunkBytes];
  const ssize_t size = ::read(stream.fd, bytes, sizeof(bytes));
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (size <= 0) {
    ::close(stream.fd);
    stream.fd = -1;
    return false;
  }
  stream.tail.append({bytes, static_cast<size_t>(size)});
  pass_on(bytes, static_cast<size_t>(size));
  return true;
}

void OutputRelay::pass_on(const char* bytes, size_t size) {
  while (size > 0 && !gone_ && can_write()) {
    const ssize_t written = ::write(STDERR_FILENO, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    gone_ = written <= 0;
    if (gone_) return;
    bytes += written;
    size -= static_cast<size_t>(written);
  }
}

std::vector<std::string> OutputRelay::last_lines(int rank) const {
  for (const Stream& stream : streams_) {
    if (stream.rank != rank) continue;
    return stream.log_file.empty() ? stream.tail.lines() : last_lines_of_file(stream.log_file);
  }
  return {};
}

}  // namespace deepspeed::launcher
