// Preloaded into a program whose savings are tested: leaves calls of fsync out, or ends the process or its
// file system right before a chosen call. The library itself has no such switch.
//   FAULTS_SKIP=files|folders|all     these calls of fsync do nothing
//   FAULTS_SKIP=<n>/<k>               of every k calls of fsync the n-th does nothing (from 0)
//   FAULTS_AT=<n> FAULTS_DO=kill|cut  before the n-th call that changes files (from 1)
//   FAULTS_MOUNT=<folder>             where the file system to cut is mounted
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

constexpr int kWritesCounted = 8;  // of the writes to files one of so many counts
constexpr unsigned long kExt4Shutdown = _IOR('X', 125, uint32_t);
constexpr uint32_t kNoLogFlush = 2;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

mode_t type_of(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 ? status.st_mode & S_IFMT : 0;
}

void strike() {
  if (variable("FAULTS_DO") == "kill") ::kill(::getpid(), SIGKILL);
  const int mount = ::open(variable("FAULTS_MOUNT").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  uint32_t flags = kNoLogFlush;
  if (mount < 0 || ::ioctl(mount, kExt4Shutdown, &flags) != 0) std::perror("the file system cannot be cut");
  if (mount >= 0) ::close(mount);
}

/// Before each call that changes files.
void count_call() {
  static const int64_t chosen = std::atoll(variable("FAULTS_AT").c_str());
  static std::atomic<int64_t> calls = 0;
  if (chosen > 0 && ++calls == chosen) strike();
}

bool leaves_out(int file) {
  static const std::string skip = variable("FAULTS_SKIP");
  static std::atomic<int64_t> calls = 0;
  const int64_t call = calls++;
  if (skip.empty()) return false;
  if (skip == "all") return true;
  const bool is_folder = type_of(file) == S_IFDIR;
  if (skip == "folders") return is_folder;
  if (skip == "files") return !is_folder;
  const size_t slash = skip.find('/');
  return call % std::atoll(skip.c_str() + slash + 1) == std::atoll(skip.c_str());
}

}  // namespace

extern "C" {

int fsync(int file) {
  count_call();
  return leaves_out(file) ? 0 : next<int (*)(int)>("fsync")(file);
}

ssize_t write(int file, const void* data, size_t size) {
  static std::atomic<int64_t> writes = 0;
  static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
  if (type_of(file) == S_IFREG && writes++ % kWritesCounted == 0) count_call();
  return real(file, data, size);
}

// Blocks that go past the page cache.
int io_uring_submit(void* ring) {
  static const auto real = next<int (*)(void*)>("io_uring_submit");
  static std::atomic<int64_t> blocks = 0;
  if (blocks++ % kWritesCounted == 0) count_call();
  return real(ring);
}

int ftruncate(int file, off_t size) noexcept {
  count_call();
  return next<int (*)(int, off_t)>("ftruncate")(file, size);
}

int rename(const char* from, const char* to) noexcept {
  count_call();
  return next<int (*)(const char*, const char*)>("rename")(from, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  count_call();
  return next<int (*)(int, const char*, int, const char*, unsigned)>("renameat2")(from_folder, from,
                                                                                  to_folder, to, flags);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  count_call();
  return next<int (*)(int, const char*, int, const char*)>("renameat")(from_folder, from, to_folder, to);
}

int mkdirat(int folder, const char* name, mode_t mode) noexcept {
  count_call();
  return next<int (*)(int, const char*, mode_t)>("mkdirat")(folder, name, mode);
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  count_call();
  return next<int (*)(int, const char*, int, const char*, int)>("linkat")(from_folder, from, to_folder, to,
                                                                          flags);
}

int mkdir(const char* name, mode_t mode) noexcept {
  count_call();
  return next<int (*)(const char*, mode_t)>("mkdir")(name, mode);
}

int unlink(const char* name) noexcept {
  count_call();
  return next<int (*)(const char*)>("unlink")(name);
}

int unlinkat(int folder, const char* name, int flags) noexcept {
  count_call();
  return next<int (*)(int, const char*, int)>("unlinkat")(folder, name, flags);
}

}  // extern "C"
