#include "deepspeed/checkpoint/tag_folder.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/atomic_file.h"
#include "deepspeed/checkpoint/manifest.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kTagFolderWhere = "checkpoint.tag_folder";
constexpr const char* kRemoved = ".removed";
using std::filesystem::path;

/// Beside the folder of the tag, which may lie in a folder of its own ("run/step5").
std::string beside(const std::string& tag, const char* ending) {
  const path whole(tag);
  return (whole.parent_path() / ("." + whole.filename().string() + ending)).string();
}

void rename_folder(const path& from, const path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  raise<IoError>(kTagFolderWhere, "cannot rename ", from, " to ", to, ": ", std::strerror(errno));
}

void remove_folder(const path& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (error) raise<IoError>(kTagFolderWhere, "cannot remove ", folder, ": ", error.message());
}

/// Both names at one moment; false where the file system cannot.
bool exchange(const path& a, const path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

}  // namespace

std::string staging_tag(const std::string& tag) { return beside(tag, ".saving"); }

void begin_tag(const path& dir, const std::string& tag) {
  const path staging = dir / staging_tag(tag);
  remove_folder(staging);
  std::error_code error;
  std::filesystem::create_directories(staging, error);
  if (error) raise<IoError>(kTagFolderWhere, "the folder ", staging, " cannot be made: ", error.message());
}

void publish_tag(const path& dir, const std::string& tag) {
  const path staging = dir / staging_tag(tag), target = dir / tag, old = dir / beside(tag, ".old");
  if (!std::filesystem::exists(staging)) return;
  sync_folder(staging);
  if (!std::filesystem::exists(target)) {
    rename_folder(staging, target);
    sync_folder(target.parent_path());
    return;
  }
  if (exchange(staging, target)) {
    sync_folder(target.parent_path());
    return remove_folder(staging);  // the older folder by now
  }
  remove_folder(old);
  rename_folder(target, old);
  rename_folder(staging, target);
  sync_folder(target.parent_path());
  remove_folder(old);
}

void recover_tag(const path& dir, const std::string& tag) {
  const path target = dir / tag, old = dir / beside(tag, ".old");
  if (!std::filesystem::exists(old)) return;
  if (std::filesystem::exists(target)) return remove_folder(old);
  rename_folder(old, target);
  sync_folder(target.parent_path());
}

void prune_tags(const path& dir, const std::string& tag, int64_t keep_last) {
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().filename().string().ends_with(kRemoved))
      remove_folder(entry.path());  // of a killed process
  }
  int64_t kept = 1;
  for (const std::string& other : find_complete_tags(dir)) {
    if (other == tag || ++kept <= keep_last) continue;
    // Under another name first: what is half removed is no tag.
    const path removed = dir / beside(other, kRemoved);
    remove_folder(removed);
    rename_folder(dir / other, removed);
    remove_folder(removed);
  }
}

}  // namespace deepspeed::checkpoint
