#include "deepspeed/base/text_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/base/error.h"

namespace deepspeed {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

/// Counts the unused file descriptors in [first, end), and stops at `most`.
uint64_t free_handles(uint64_t first, uint64_t end, uint64_t most) {
  uint64_t count = 0;
  for (uint64_t handle = first; handle < end && count < most; ++handle) {
    if (::fcntl(int(handle), F_GETFD) < 0) ++count;
  }
  return count;
}

constexpr unsigned kListens = 0x0A;  // TCP_LISTEN, as in the kernel's table

/// Returns the user id of whoever listens at `port`, if anybody. `table` has lines "sl: ADDRESS:PORT
/// ADDRESS:PORT STATE queues timer retransmits UID ...".
std::optional<unsigned> listening_user(const char* table, unsigned port) {
  std::ifstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    unsigned found_port = 0, state = 0, user = 0;
    const int found = std::sscanf(line.c_str(), " %*[^:]: %*[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %u",
                                  &found_port, &state, &user);
    if (found == 3 && found_port == port && state == kListens) return user;
  }
  return std::nullopt;
}

}  // namespace

std::string open_files_hint(int error) {
  if (error != EMFILE && error != ENFILE) return "";
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return error == ENFILE ? std::string("; the machine has no room for more open files")
                         : message("; this process may have ", limit.rlim_cur,
                                   " files open: raise the limit, for example by: ulimit -n ",
                                   std::max<rlim_t>(4096, limit.rlim_cur * 2));
}

void require_open_files(uint64_t count, const std::string& what) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const uint64_t more = free_handles(0, limit.rlim_cur, count);
  if (more >= count) return;
  const uint64_t wanted = limit.rlim_cur + count;
  if (limit.rlim_max >= wanted) {
    limit.rlim_cur = wanted;
    if (::setrlimit(RLIMIT_NOFILE, &limit) == 0) return;
  }
  raise<IoError>(what, " needs room for ", count, " further open files, and this process may have ",
                 limit.rlim_cur, " open, of which ", more,
                 " are left: raise the limit, for example by: ulimit -n ",
                 std::max<uint64_t>(4096, limit.rlim_cur * 2));
}

int open_regular_file(const std::filesystem::path& path, const char* expected) {
  // Without O_NONBLOCK the call itself would wait on a FIFO.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) {
    const int error = errno;
    if (error == ENXIO) raise<IoError>(path.string(), " is a socket or a device, expected a ", expected);
    raise<IoError>("cannot open ", path.string(), ": ", std::strerror(error), open_files_hint(error),
                   ", expected a readable ", expected);
  }
  struct stat status {};
  const bool is_known = ::fstat(file, &status) == 0;
  if (is_known && S_ISREG(status.st_mode)) return file;
  ::close(file);
  raise<IoError>(path.string(), " is ", is_known ? kind_of(status.st_mode) : "of an unknown kind",
                 ", expected a ", expected);
}

std::string read_text_file(const std::filesystem::path& path, size_t max_bytes, const char* expected) {
  const int file = open_regular_file(path, expected);
  constexpr size_t kPiece = size_t{64} << 10;
  std::string text;
  ssize_t count = 1;
  while (count > 0 && text.size() <= max_bytes) {
    const size_t before = text.size();
    text.resize(before + kPiece);
    do {
      count = ::read(file, text.data() + before, kPiece);
    } while (count < 0 && errno == EINTR);
    text.resize(before + size_t(std::max<ssize_t>(count, 0)));
  }
  const int error = errno;
  ::close(file);
  if (count < 0) raise<IoError>("cannot read ", path.string(), ": ", std::strerror(error));
  if (text.size() > max_bytes)
    raise<IoError>(path.string(), " has more than ", max_bytes, " bytes, expected fewer");
  return text;
}

std::string taker_of_port(int port) {
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    const auto user = listening_user(table, unsigned(port));
    if (user && *user != ::geteuid())
      return message("a program of another user of this machine (uid ", *user, ")");
  }
  return "another program";
}

}  // namespace deepspeed
