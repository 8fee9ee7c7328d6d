// What happens to a tag's folder that exists before a save.
//
// 1. require_replaceable() refuses everything but an empty folder of this user or a checkpoint.
// 2. The save writes a new folder, and keep_others() adds the user's own files of the old one to it. Each
//    becomes a hard link, or a copy if the file system has no hard links.
//
// The manifest lists the checkpoint's files. Files that are named like checkpoint files belong to it too.
#include "deepspeed/checkpoint/tag/tag_content.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <exception>
#include <set>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/manifest.h"

namespace deepspeed::checkpoint {
namespace {

namespace fs = std::filesystem;
using std::filesystem::path;

/// Reads the folder's manifest. Returns an empty one if it is missing, altered or not ours.
Manifest manifest_if_whole(const path& folder) {
  try {
    return read_manifest(folder);
  } catch (const Error&) {
    return {};
  }
}

/// Returns the names at the top of a tag's folder that belong to its checkpoint. They are listed in the
/// manifest, or look like checkpoint files.
std::set<std::string> names_of_checkpoint(const path& folder) {
  std::set<std::string> names{manifest_path("").string()};
  for (const auto& [file, sums] : manifest_if_whole(folder).files) names.insert(path(file).begin()->string());
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (is_checkpoint_file(name)) names.insert(name);
  }
  if (is_universal(folder)) names.insert(universal_zero_folder("").string());
  return names;
}

[[noreturn]] void refuse_to_replace(const path& target, const std::string& what) {
  raise<UsageError>(target, " ", what, ": a save would replace it; choose another tag, or move it away");
}

/// Describes the folder's content: "is not a checkpoint, but a folder that holds 'notes.txt'".
std::string what_a_folder_is(const path& folder, bool expects_universal) {
  return message("is not a ", expects_universal ? "universal " : "", "checkpoint, but a folder that holds '",
                 fs::directory_iterator(folder)->path().filename().string(), "'");
}

/// Copies the open file `from`, from its position on, to the open file `to`, durably. Returns 0 or an errno.
int copy_content(int from, int to) {
  std::vector<char> piece(size_t{1} << 20);
  for (;;) {
    const ssize_t count = ::read(from, piece.data(), piece.size());
    if (count == 0) return ::fsync(to) == 0 || errno == EINVAL ? 0 : errno;
    if (count < 0) return errno;
    for (ssize_t done = 0, more = 0; done < count; done += more) {
      more = ::write(to, piece.data() + done, size_t(count - done));
      if (more < 0) return errno;
    }
  }
}

/// Copies the file `name` with its permissions into the folder `to`. Returns 0 or an errno.
int copy_file(const Folder& from, const std::string& name, const Folder& to) {
  const int source = from.open_file(name, O_RDONLY | O_NONBLOCK);
  if (source < 0) return errno;
  struct stat status {};
  int error = ::fstat(source, &status) != 0 ? errno : S_ISREG(status.st_mode) ? 0 : EINVAL;
  const int target = error != 0 ? -1 : to.open_file(name, O_WRONLY | O_CREAT | O_EXCL, 0600);
  if (error == 0 && target < 0) error = errno;
  if (error == 0) error = copy_content(source, target);
  if (error == 0 && ::fchmod(target, status.st_mode & 07777) != 0) error = errno;
  ::close(source);
  if (target >= 0) ::close(target);
  return error;
}

/// Copies the link `name` into the folder `to`. Returns 0 or an errno.
int copy_link(const Folder& from, const std::string& name, const Folder& to) {
  std::array<char, PATH_MAX> target{};
  if (::readlinkat(from.handle(), name.c_str(), target.data(), target.size() - 1) < 0) return errno;
  return ::symlinkat(target.data(), to.handle(), name.c_str()) == 0 ? 0 : errno;
}

/// Adds the entry `name`, a folder with its content, to the folder `to`. Entries that `to` has stay. Throws
/// IoError.
void keep_entry(const Folder& from, const std::string& name, const Folder& to) {
  if (const auto inner = from.find(name)) {
    struct stat status {};
    ::fstat(inner->handle(), &status);
    if (!to.has(name) && ::mkdirat(to.handle(), name.c_str(), status.st_mode & 07777) != 0)
      raise<IoError>(to.path() / name, ": ", std::strerror(errno));
    const auto there = to.find(name);
    if (!there) return;  // a link or a file
    for (const std::string& entry : inner->names()) keep_entry(*inner, entry, *there);
    return there->sync();
  }
  if (to.has(name)) return;
  struct stat status {};
  const bool is_link =
      ::fstatat(from.handle(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
  if (!is_link && ::linkat(from.handle(), name.c_str(), to.handle(), name.c_str(), 0) == 0) return;
  const int error = is_link ? copy_link(from, name, to) : copy_file(from, name, to);
  if (error != 0 && error != EEXIST) raise<IoError>(from.path() / name, ": ", std::strerror(error));
}

}  // namespace

bool holds_checkpoint(const path& folder) {
  if (!manifest_if_whole(folder).files.empty()) return true;
  return std::ranges::any_of(fs::directory_iterator(folder), [](const fs::directory_entry& entry) {
    return is_checkpoint_file(entry.path().filename().string());
  });
}

void require_replaceable(const path& tag_folder, bool is_universal_save) {
  const fs::file_status there = fs::symlink_status(tag_folder);
  if (!fs::exists(there)) return;
  if (fs::is_symlink(there)) refuse_to_replace(tag_folder, "is a symbolic link");
  if (!fs::is_directory(there)) refuse_to_replace(tag_folder, "is a file");
  const path parent = tag_folder.parent_path();
  if (!Folder(parent).owns(tag_folder.filename().string()))
    refuse_to_replace(tag_folder, "belongs to another user");
  if (fs::is_empty(tag_folder)) return;
  const bool holds_universal = is_universal(tag_folder);
  if (holds_universal && !is_universal_save) refuse_to_replace(tag_folder, "is a universal checkpoint");
  if (is_universal_save ? holds_universal : holds_checkpoint(tag_folder)) return;
  refuse_to_replace(tag_folder, what_a_folder_is(tag_folder, is_universal_save));
}

void require_no_folder(const path& latest) {
  if (!fs::is_directory(fs::symlink_status(latest))) return;
  raise<UsageError>(latest, " is a folder, expected the file that names the newest tag",
                    "; rename the folder");
}

void keep_others(const Folder& from, const Folder& to) {
  try {
    const std::set<std::string> ours = names_of_checkpoint(from.path());
    for (const std::string& name : from.names()) {
      if (!ours.contains(name)) keep_entry(from, name, to);
    }
  } catch (const std::exception& error) {
    raise<IoError>("cannot keep what is in ", from.path(), " beside the checkpoint: ", error.what());
  }
}

}  // namespace deepspeed::checkpoint
