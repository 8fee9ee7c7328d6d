// Decides which entries of a tag's folder a save may replace, and keeps the others.
#pragma once

#include <filesystem>

#include "deepspeed/checkpoint/file/folder.h"

namespace deepspeed::checkpoint {

/// Refuses a save that would replace anything but a checkpoint of its kind. An empty folder may be replaced
/// too, but neither a link nor a folder of another user. Throws UsageError, describing what is there.
/// `is_universal_save` tells that a universal checkpoint is saved.
void require_replaceable(const std::filesystem::path& tag_folder, bool is_universal_save);
/// Throws UsageError if `latest` or `latest_universal` is a folder.
void require_no_folder(const std::filesystem::path& latest);

/// Returns whether the folder has a manifest or a file named as in checkpoints.
bool holds_checkpoint(const std::filesystem::path& folder);

/// Adds to `to` the files of `from` that are not part of its checkpoint. Makes hard links, or durable copies
/// if the file system has no hard links. Entries that `to` already has stay. The caller syncs `to`. Throws
/// IoError.
void keep_others(const Folder& from, const Folder& to);

}  // namespace deepspeed::checkpoint
