#include "deepspeed/checkpoint/tag/tag_content.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/file/atomic_file.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/manifest.h"

namespace deepspeed::checkpoint {
namespace {

namespace fs = std::filesystem;
using std::filesystem::path;

/// Reads the folder's manifest; an empty one where it has none, or one that is not ours or altered.
Manifest manifest_if_whole(const path& folder) {
  try {
    return read_manifest(folder);
  } catch (const Error&) {
    return {};
  }
}

/// The names at the top of a tag's folder that belong to its checkpoint by the manifest, or would be taken
/// for parts of one.
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

/// Describes what is there: "is no checkpoint, but a folder that holds 'notes.txt'".
std::string what_a_folder_is(const path& folder, bool expects_universal) {
  return message("is no ", expects_universal ? "universal " : "", "checkpoint, but a folder that holds '",
                 fs::directory_iterator(folder)->path().filename().string(), "'");
}

void sync_file(const path& file) {
  const int handle = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = handle >= 0 && (::fsync(handle) == 0 || errno == EINVAL);
  const int error = errno;
  if (handle >= 0) ::close(handle);
  if (!synced) raise<IoError>("cannot fsync ", file, ": ", std::strerror(error));
}

void keep_file(const path& from, const path& to) {
  if (::link(from.c_str(), to.c_str()) == 0 || errno == EEXIST) return;
  fs::copy_file(from, to);
  sync_file(to);
}

/// Copies a link, a file, or a folder with all that is in it.
void keep_entry(const path& from, const path& to) {
  const fs::file_status there = fs::symlink_status(to);
  if (!fs::is_directory(fs::symlink_status(from))) {
    if (fs::exists(there)) return;
    return fs::is_symlink(from) ? fs::copy_symlink(from, to) : keep_file(from, to);
  }
  if (!fs::exists(there)) fs::create_directory(to, from);
  if (fs::is_symlink(there) || !fs::is_directory(to)) return;
  for (const auto& entry : fs::directory_iterator(from))
    keep_entry(entry.path(), to / entry.path().filename());
  sync_folder(to);
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

void keep_others(const path& from, const path& to) {
  try {
    const std::set<std::string> ours = names_of_checkpoint(from);
    for (const auto& entry : fs::directory_iterator(from)) {
      const path name = entry.path().filename();
      if (!ours.contains(name.string())) keep_entry(entry.path(), to / name);
    }
  } catch (const fs::filesystem_error& error) {
    raise<IoError>("cannot keep what is in ", from, " beside the checkpoint: ", error.what());
  }
}

}  // namespace deepspeed::checkpoint
