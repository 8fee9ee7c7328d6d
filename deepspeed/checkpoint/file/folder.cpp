#include "deepspeed/checkpoint/file/folder.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text_file.h"

namespace deepspeed::checkpoint {
namespace {

constexpr int kFolder = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

std::shared_ptr<const int> keep_open(int handle) {
  return {new int(handle), [](const int* held) {
            ::close(*held);
            delete held;
          }};
}

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// Returns the owner of new entries in the folder, which some file systems choose themselves.
uid_t owner_of_new(const Folder& folder) {
  const std::string probe = ".owner_probe." + std::to_string(::getpid());
  struct stat made {};
  if (::mkdirat(folder.handle(), probe.c_str(), 0700) != 0) return ::geteuid();
  const bool is_known = ::fstatat(folder.handle(), probe.c_str(), &made, AT_SYMLINK_NOFOLLOW) == 0;
  ::unlinkat(folder.handle(), probe.c_str(), AT_REMOVEDIR);
  return is_known ? made.st_uid : ::geteuid();
}

}  // namespace

Folder::Folder(const std::filesystem::path& path) : path_(path) {
  const int handle = ::open(path.empty() ? "." : path.c_str(), kFolder);
  if (handle < 0)
    raise<IoError>("cannot open the folder ", path, ": ", std::strerror(errno), open_files_hint(errno));
  handle_ = keep_open(handle);
}

Folder::Folder(std::filesystem::path path, int handle) : path_(std::move(path)), handle_(keep_open(handle)) {}

void Folder::fail(const char* action, const std::string& name, int error) const {
  raise<IoError>("cannot ", action, " ", path_ / name, ": ", std::strerror(error), open_files_hint(error));
}

std::optional<Folder> Folder::find(const std::string& name) const {
  const int found = ::openat(handle(), name.c_str(), kFolder | O_NOFOLLOW);
  if (found >= 0) return Folder(path_ / name, found);
  if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) return std::nullopt;
  fail("open the folder", name, errno);
}

Folder Folder::make(const std::string& name) const {
  if (::mkdirat(handle(), name.c_str(), 0777) != 0 && errno != EEXIST) fail("make the folder", name, errno);
  auto folder = find(name);
  if (!folder) {
    raise<IoError>(path_ / name, " is a symbolic link or a file, expected a folder or nothing: ",
                   "a save does not follow it; remove it, or save elsewhere");
  }
  if (!owns(name)) {
    raise<IoError>("the folder ", path_ / name, " belongs to another user",
                   ": a save neither empties nor fills it; have it removed, or save elsewhere");
  }
  return *std::move(folder);
}

bool Folder::owns(const std::string& name) const {
  struct stat entry {};
  if (::fstatat(handle(), name.c_str(), &entry, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(entry.st_mode))
    return false;
  return entry.st_uid == ::geteuid() || entry.st_uid == owner_of_new(*this);
}

bool Folder::has(const std::string& name) const {
  struct stat named {};
  return ::fstatat(handle(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0;
}

bool Folder::has(const std::string& name, const Folder& folder) const {
  struct stat held {
  }, named{};
  return ::fstat(folder.handle(), &held) == 0 &&
         ::fstatat(handle(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 && is_same(held, named);
}

int Folder::open_file(const std::string& name, int flags, mode_t mode) const {
  return ::openat(handle(), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, mode);
}

void Folder::remove(const std::string& name) const {
  if (::unlinkat(handle(), name.c_str(), 0) == 0 || errno == ENOENT) return;
  const int error = errno;
  const auto folder = error == EISDIR || error == EPERM ? find(name) : std::nullopt;
  if (!folder) fail("remove", name, error);
  folder->empty();
  if (::unlinkat(handle(), name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) fail("remove", name, errno);
}

void Folder::remove_own(const std::string& name) const {
  if (!has(name)) return;
  if (!owns(name)) fail("remove, as it is no folder of this user,", name, EPERM);
  remove(name);
}

void Folder::empty() const {
  for (const std::string& name : names()) remove(name);
}

void Folder::rename(const std::string& from, const std::string& to) const {
  if (::renameat(handle(), from.c_str(), handle(), to.c_str()) == 0) return;
  raise<IoError>("cannot rename ", path_ / from, " to ", path_ / to, ": ", std::strerror(errno));
}

bool Folder::exchange(const std::string& a, const std::string& b) const {
  return ::renameat2(handle(), a.c_str(), handle(), b.c_str(), RENAME_EXCHANGE) == 0;
}

void Folder::sync() const {
  // EINVAL means that the file system cannot sync folders.
  if (::fsync(handle()) != 0 && errno != EINVAL) fail("fsync the folder", "", errno);
}

std::vector<std::string> Folder::names() const {
  // A new file description is needed, because the reading position belongs to the description.
  const int again = ::openat(handle(), ".", kFolder);
  DIR* entries = again < 0 ? nullptr : ::fdopendir(again);
  if (entries == nullptr) {
    const int error = errno;
    if (again >= 0) ::close(again);
    fail("list", "", error);
  }
  std::vector<std::string> found;
  errno = 0;
  while (const dirent* entry = ::readdir(entries)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") found.push_back(name);
  }
  const int error = errno;
  ::closedir(entries);
  if (error != 0) fail("list", "", error);
  return found;
}

}  // namespace deepspeed::checkpoint
