// Each process locks its own byte of "<folder>/.writers", far past the end. It checks whether another byte is
// locked. The locks are those of fcntl(), which NFS supports. They end with the process, while those of
// flock() last until the last child that inherited the descriptor ends. The locks of fcntl() also end when
// the process closes any other descriptor of the file, so the file is opened only once (enter()). Each
// process also writes a line that tells whose byte it is; a line without its lock means nothing.
#include "deepspeed/checkpoint/tag/folder_writers.h"

#include <array>
#include <cerrno>
#include <map>
#include <mutex>
#include <random>
#include <sstream>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/system/files.h"
#include "deepspeed/checkpoint/file/atomic_file.h"
#include "deepspeed/checkpoint/tag/staging_lock.h"

namespace deepspeed::checkpoint {
namespace {

using std::filesystem::path;
constexpr int64_t kFirstPlace = int64_t{1} << 32;  // past all lines

struct flock lock_of(int64_t begin, int64_t size) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = begin;
  lock.l_len = size;
  return lock;
}

int64_t new_place() {
  std::random_device random;
  return kFirstPlace + int64_t((uint64_t{random()} << 29) ^ random());
}

bool is_file_of(int handle, const path& name) {
  struct stat held {
  }, named{};
  return ::fstat(handle, &held) == 0 && ::stat(name.c_str(), &named) == 0 && is_same_file(held, named);
}

std::string content_of(int handle) {
  std::array<char, 16384> bytes{};
  const ssize_t count = ::pread(handle, bytes.data(), bytes.size(), 0);
  return count < 0 ? "" : std::string(bytes.data(), size_t(count));
}

struct Entered {
  std::mutex mutex;
  std::map<path, std::weak_ptr<FolderWriter>> writers;
};
Entered& entered() {
  static auto* const all = new Entered;  // not destroyed: engines may outlive other statics
  return *all;
}

}  // namespace

path writers_path(const path& folder) { return folder / ".writers"; }

std::shared_ptr<FolderWriter> FolderWriter::enter(const path& folder) {
  make_folders(folder);
  std::error_code unknown;
  path real = std::filesystem::canonical(folder, unknown);
  if (unknown) real = std::filesystem::absolute(folder);
  const std::lock_guard guard(entered().mutex);
  std::weak_ptr<FolderWriter>& known = entered().writers[real];
  if (auto writer = known.lock(); writer && writer->process_ == ::getpid()) return writer;
  std::shared_ptr<FolderWriter> writer(new FolderWriter(real));
  known = writer;
  return writer;
}

FolderWriter::FolderWriter(path folder) : folder_(std::move(folder)), process_(::getpid()) {
  constexpr int kAttempts = 20;  // another process may remove the file at any moment
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    handle_ =
        ::open(writers_path(folder_).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (handle_ < 0) return;
    if (lock_place() && is_file_of(handle_, writers_path(folder_))) break;
    ::close(std::exchange(handle_, -1));
  }
  if (handle_ < 0) return;
  if (other().empty() && ::ftruncate(handle_, 0) != 0) return;  // lines of ended processes
  const std::string line = message(place_, " ", own_process(), "\n");
  struct stat status {};
  ::fstat(handle_, &status);
  [[maybe_unused]] const ssize_t written = ::pwrite(handle_, line.data(), line.size(), status.st_size);
}

bool FolderWriter::lock_place() {
  struct stat status {};
  // A second name may belong to someone else's file.
  if (::fstat(handle_, &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink > 1) return false;
  place_ = new_place();
  struct flock lock = lock_of(place_, 1);
  return ::fcntl(handle_, F_SETLK, &lock) == 0;
}

FolderWriter::~FolderWriter() {
  if (handle_ < 0) return;
  const std::lock_guard guard(entered().mutex);
  if (process_ == ::getpid() && other().empty() && is_file_of(handle_, writers_path(folder_)))
    ::unlink(writers_path(folder_).c_str());
  ::close(handle_);
}

std::string FolderWriter::other() const {
  struct flock lock = lock_of(kFirstPlace, 0);
  if (handle_ < 0 || ::fcntl(handle_, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return "";
  std::istringstream lines(content_of(handle_));
  const std::string place = std::to_string(lock.l_start) + " ";
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(place)) return line.substr(place.size());
  }
  return message("process ", lock.l_pid);
}

void FolderWriter::note_saved(const std::string& tag) {
  const std::lock_guard lock(mutex_);
  saved_.insert(tag);
}

bool FolderWriter::has_saved(const std::string& tag) const {
  const std::lock_guard lock(mutex_);
  return saved_.contains(tag);
}

std::string FolderWriter::identity(const std::string& tag) const {
  struct stat status {};
  if (::lstat((folder_ / tag).c_str(), &status) != 0) return "";
  return message(status.st_dev, ".", status.st_ino);
}

void FolderWriter::refuse(const std::string& tag, const std::string& job) const {
  raise<UsageError>("the tag '", tag, "' is in ", folder_, ", into which another job ",
                    job.empty() ? "" : "(" + job + ") ",
                    "saves: this save would replace what that job has saved, or may read next; give this "
                    "job another folder, or save under another tag");
}

std::string FolderWriter::check(const std::string& tag) {
  const std::string there = identity(tag), job = other();
  if (job.empty()) return there;
  if (!there.empty() && !has_saved(tag)) refuse(tag, job);
  if (std::exchange(has_warned_, true)) return there;
  log::warning("[checkpoint] another job (", job, ") saves into ", folder_,
               " too: `latest` names the tag of the one that saved last; give each job a folder of its own");
  return there;
}

void FolderWriter::check_again(const std::string& tag, const std::string& before) const {
  const std::string there = identity(tag), job = other();
  if (there.empty() || has_saved(tag)) return;
  // If the other job has ended since, only its tag shows that it was there.
  if (!job.empty() || there != before) refuse(tag, job);
}

}  // namespace deepspeed::checkpoint
