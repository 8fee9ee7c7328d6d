// How a tag appears whole, in which order, and what a crash leaves at each point:
//
// 1. begin_tag(): removes leftovers of processes that are gone, makes ".<tag>.saving" and locks it. A crash
// up
//    to step 3 leaves that folder, which the next save removes; the older tag is untouched.
// 2. The ranks write and sync their files there, the manifest last.
// 3. publish_tag(): gives the older tag's other files a place in the new one, syncs, and exchanges the two
// names
//    in one step (renameat2). Where the file system cannot exchange, the older tag is renamed to ".<tag>.old"
//    first; a crash between the two renames leaves that, and recover_tag() brings it back.
// 4. The older content, now under the staging name, is removed. The caller changes `latest` afterwards.
//
// prune_tags() renames a tag before it removes it, so that a half-removed one is never taken for a tag.
#include "deepspeed/checkpoint/tag/tag_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include <fcntl.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/file/atomic_file.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/tag_content.h"
#include "deepspeed/checkpoint/tag/tag_name.h"

namespace deepspeed::checkpoint {
namespace {

constexpr const char* kSaving = ".saving";
constexpr const char* kRemoved = ".removed";
using std::filesystem::path;

/// Names a folder beside that of the tag, which may lie in a folder of its own ("run/step5").
std::string beside(const std::string& tag, const char* ending) {
  const path whole(tag);
  return (whole.parent_path() / ("." + whole.filename().string() + ending)).string();
}

void rename_folder(const path& from, const path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  raise<IoError>("cannot rename ", from, " to ", to, ": ", std::strerror(errno));
}

void remove_folder(const path& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (error) raise<IoError>("cannot remove ", folder, ": ", error.message());
}

/// Exchanges two names in one step; returns false where the file system cannot.
bool exchange(const path& a, const path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

bool is_leftover(const path& entry) {
  const std::string name = entry.filename().string();
  if (name.starts_with('.')) return name.ends_with(kSaving) || name.ends_with(kRemoved);
  return is_temporary_beside_tags(name);
}

/// Removes a leftover, unless a living process fills it. in_folder: holds nothing while another process may
/// be writing a file beside the tags.
void remove_leftover(const path& leftover, const StagingLock& in_folder) {
  if (is_temporary_beside_tags(leftover.filename().string())) {
    if (in_folder.is_held()) remove_folder(leftover);
    return;
  }
  if (!std::filesystem::is_directory(std::filesystem::symlink_status(leftover))) return;
  const StagingLock lock(leftover);
  if (lock.is_held()) remove_folder(leftover);
}

/// Removes what killed processes left: half-filled and half-removed folders, a `latest` or a script that did
/// not get its name.
void remove_leftovers(const path& folder) {
  const StagingLock lock(folder);
  std::vector<path> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (is_leftover(entry.path())) found.push_back(entry.path());
  }
  for (const path& leftover : found) remove_leftover(leftover, lock);
}

void empty_folder(const path& folder) {
  std::vector<path> entries;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) entries.push_back(entry.path());
  for (const path& entry : entries) remove_folder(entry);
}

/// Says whether `old` is a tag that a crash between the two renames of replace_tag() has left.
bool is_older_tag(const path& old) { return std::filesystem::is_directory(old) && holds_checkpoint(old); }

/// Puts the filled folder in the place of an older tag. Its other files are in the new one already; those
/// that came into it since are moved after the names have changed.
void replace_tag(const path& staging, const path& target, const path& old) {
  // After the exchange the older folder has the staging name until it is removed: the lock keeps others off
  // it.
  const StagingLock lock_of_older = wait_for_lock(target);
  // With an exchange there is a whole tag under the name at every moment; without one there is none for a
  // moment, which recover_tag() repairs after a crash.
  const bool exchanged = exchange(staging, target);
  if (!exchanged) {
    rename_folder(target, old);
    rename_folder(staging, target);
  }
  sync_folder(target.parent_path());
  const path& older = exchanged ? staging : old;
  keep_others(older, target);
  remove_folder(older);
}

/// Resolves links; returns an empty path where nothing is there.
path real_path(const path& entry) {
  std::error_code broken;
  return std::filesystem::canonical(entry, broken);
}

/// Lists the folders that links in `dir` name.
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
  const path staging = dir / staging_tag(tag);
  make_folders(dir);
  remove_leftovers(dir);
  StagingLock lock = lock_staging(staging, tag);
  empty_folder(staging);
  note_owner(staging);
  return lock;
}

void remove_unlisted(const path& dir, const std::string& tag, const Manifest& manifest) {
  std::vector<path> unlisted;
  for (const auto& entry : std::filesystem::directory_iterator(dir / staging_tag(tag))) {
    if (!manifest.sums_of(entry.path())) unlisted.push_back(entry.path());
  }
  for (const path& entry : unlisted) remove_folder(entry);
}

void recover_tag(const path& dir, const std::string& tag) {
  const path target = dir / tag, old = dir / beside(tag, ".old");
  if (!is_older_tag(old)) return;
  if (std::filesystem::exists(target)) return remove_folder(old);
  // Another machine that shares the file system may be doing the same.
  if (::rename(old.c_str(), target.c_str()) != 0 && !std::filesystem::exists(target))
    raise<IoError>("cannot rename ", old, " to ", target, ": ", std::strerror(errno));
  sync_folder(target.parent_path());
}

void publish_tag(const path& dir, const std::string& tag) {
  const path staging = dir / staging_tag(tag), target = dir / tag;
  if (!std::filesystem::exists(staging)) return;
  recover_tag(dir, tag);
  require_replaceable(target, is_universal(staging));
  remove_owner_note(staging);
  if (std::filesystem::exists(target)) {
    keep_others(target, staging);
    sync_folder(staging);
    return replace_tag(staging, target, dir / beside(tag, ".old"));
  }
  sync_folder(staging);
  rename_folder(staging, target);
  sync_folder(dir);
}

void prune_tags(const path& dir, const std::string& newest, int64_t keep_last) {
  remove_leftovers(dir);
  const std::vector<path> linked = targets_of_links(dir);
  int64_t kept = 1;
  for (const std::string& other : find_tags_in_turn(dir)) {
    const path target = dir / other;
    if (other == newest || ++kept <= keep_last) continue;
    if (std::ranges::find(linked, real_path(target)) != linked.end()) continue;
    // The tag gets another name first, durably, so that a half-removed one is no tag.
    const path removed = dir / beside(other, kRemoved);
    remove_folder(removed);
    rename_folder(target, removed);
    sync_folder(dir);
    remove_folder(removed);
  }
}

}  // namespace deepspeed::checkpoint
