// A tag appears as a whole in these steps. Each says what a crash leaves behind.
//
// 1. begin_tag() removes leftovers of ended processes, creates ".<tag>.saving" and locks it. A crash before
//    step 3 leaves that folder, which the next save removes. The older tag is untouched.
// 2. The ranks write and sync their files there, the manifest last.
// 3. publish_tag() adds the older tag's other files to the new one, syncs, and swaps the two names atomically
//    (renameat2). If the file system cannot swap, the older tag is first renamed to ".<tag>.old". After a
//    crash between the two renames, recover_tag() restores it.
// 4. The older content, which has the staging name after the swap, is removed. The caller then changes
//    `latest`.
//
// All names are relative to the run's folder, which is held open (Folder). If others can write there, their
// links are not followed, and another user's folders are left alone.
//
// prune_tags() renames a tag before removing it, so that a half-removed one is never mistaken for a tag.
#include "deepspeed/checkpoint/tag/tag_folder.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/file/atomic_file.h"
#include "deepspeed/checkpoint/file/folder.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/tag_content.h"
#include "deepspeed/checkpoint/tag/tag_name.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kSaving = ".saving";
constexpr const char* kRemoved = ".removed";
constexpr const char* kOld = ".old";
using std::filesystem::path;

/// Returns the path of a folder next to that of the tag: ".<name><ending>". A tag may be in a subfolder
/// ("run/step5").
std::string beside(const std::string& tag, const char* ending) {
  const path whole(tag);
  return (whole.parent_path() / ("." + whole.filename().string() + ending)).string();
}

bool is_leftover(const std::string& name) {
  if (name.starts_with('.')) return name.ends_with(kSaving) || name.ends_with(kRemoved);
  return is_temporary_beside_tags(name);
}

/// Removes a leftover, unless a running process fills it or it belongs to another user. Temporary files next
/// to the tags are removed only if `in_dir`, a lock on `dir`, is held. Otherwise another process may be
/// writing them.
void remove_leftover(const Folder& dir, const std::string& name, const StagingLock& in_dir) {
  if (is_temporary_beside_tags(name)) {
    if (in_dir.is_held()) ::unlinkat(dir.handle(), name.c_str(), 0);
    return;
  }
  const auto leftover = dir.owns(name) ? dir.find(name) : std::nullopt;
  if (!leftover) return;
  const StagingLock lock(*leftover);
  if (lock.is_held() && dir.has(name, *leftover)) dir.remove(name);
}

/// Removes what killed processes left: partly filled or removed folders, and temporary files of `latest` or
/// the script.
void remove_leftovers(const Folder& dir) {
  const StagingLock lock(dir);
  for (const std::string& name : dir.names()) {
    if (is_leftover(name)) remove_leftover(dir, name, lock);
  }
}

/// Returns whether the path `old` is a tag's folder that a crash in replace_tag() left.
bool is_older_tag(const path& old) {
  std::error_code unknown;
  return std::filesystem::is_directory(std::filesystem::symlink_status(old, unknown)) &&
         holds_checkpoint(old);
}

/// Puts the filled folder in the place of an older tag, which it removes. The filled folder already has the
/// older tag's other files. Those added since are linked or copied after the swap.
void replace_tag(const Folder& dir, const std::string& tag) {
  const std::string staging = staging_tag(tag), old = beside(tag, kOld);
  // After the swap, the older folder has the staging name until it is removed. The lock protects it from
  // other processes.
  const auto older = dir.find(tag);
  const StagingLock lock_of_older = older ? wait_for_lock(*older) : StagingLock();
  // With a swap, the name always refers to a whole tag. Without one, it is missing for a moment;
  // recover_tag() repairs a crash then.
  const bool exchanged = dir.exchange(staging, tag);
  if (!exchanged) {
    dir.rename(tag, old);
    dir.rename(staging, tag);
  }
  dir.sync();
  const std::string& name = exchanged ? staging : old;
  const auto replaced = dir.find(name), filled = dir.find(tag);
  if (replaced && filled) keep_others(*replaced, *filled);
  dir.remove_own(name);
}

/// Returns the path with all links resolved; an empty path if nothing is there.
path real_path(const path& entry) {
  std::error_code broken;
  return std::filesystem::canonical(entry, broken);
}

/// Lists the folders that links in `dir` refer to.
std::vector<path> targets_of_links(const path& dir) {
  std::vector<path> targets;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.is_symlink()) targets.push_back(real_path(entry.path()));
  }
  return targets;
}

}  // namespace

std::string staging_tag(const std::string& tag) { return beside(tag, kSaving); }

StagingLock begin_tag(const path& dir, const std::string& tag) {
  make_folders(dir);
  const Folder folder(dir);
  remove_leftovers(folder);
  LockedStaging staging = lock_staging(folder, staging_tag(tag), tag);
  folder.sync();
  staging.folder.empty();
  note_owner(staging.folder);
  return std::move(staging.lock);
}

Folder open_staging(const path& dir, const std::string& tag) {
  make_folders(dir);
  return Folder(dir).make(staging_tag(tag));
}

void abandon_tag(const path& dir, const std::string& tag) noexcept {
  try {
    Folder(dir).remove_own(staging_tag(tag));
  } catch (const std::exception&) {
    // The next save removes it, or reports what is in its way.
  }
}

void remove_unlisted(const Folder& staging, const Manifest& manifest) {
  for (const std::string& name : staging.names()) {
    if (!manifest.sums_of(name)) staging.remove(name);
  }
}

void recover_tag(const path& dir, const std::string& tag) {
  const path target = dir / tag, old = dir / beside(tag, kOld);
  if (!is_older_tag(old)) return;
  const Folder parent(target.parent_path());
  const std::string old_name = old.filename().string(), name = target.filename().string();
  if (!parent.owns(old_name)) return;
  if (std::filesystem::exists(target)) return parent.remove(old_name);
  try {
    parent.rename(old_name, name);
  } catch (const IoError&) {
    // Another machine on the same file system may have done it.
    if (!std::filesystem::exists(target)) throw;
  }
  parent.sync();
}

void publish_tag(const path& dir, const std::string& tag) {
  const std::string name = staging_tag(tag);
  if (!std::filesystem::exists(dir / name)) return;
  const Folder folder(dir);
  const Folder staging = folder.make(name);
  recover_tag(dir, tag);
  require_replaceable(dir / tag, is_universal(staging.path()));
  remove_owner_note(staging);
  if (const auto older = folder.find(tag)) {
    keep_others(*older, staging);
    staging.sync();
    return replace_tag(folder, tag);
  }
  staging.sync();
  folder.rename(name, tag);
  folder.sync();
}

void prune_tags(const path& dir, const std::string& newest, int64_t keep_last) {
  const Folder folder(dir);
  remove_leftovers(folder);
  const std::vector<path> linked = targets_of_links(dir);
  std::string foreign;
  int64_t kept = 1;
  for (const std::string& other : find_tags_in_turn(dir)) {
    if (other == newest || ++kept <= keep_last) continue;
    if (std::ranges::find(linked, real_path(dir / other)) != linked.end()) continue;
    if (!folder.owns(other)) {
      foreign = other;
      continue;
    }
    // The tag is first renamed, durably, so that a half-removed one is not taken for a tag.
    const std::string removed = beside(other, kRemoved);
    folder.remove_own(removed);
    folder.rename(other, removed);
    folder.sync();
    folder.remove_own(removed);
  }
  if (!foreign.empty()) raise<IoError>("the tag '", foreign, "' belongs to another user");
}

}  // namespace deepspeed::checkpoint
