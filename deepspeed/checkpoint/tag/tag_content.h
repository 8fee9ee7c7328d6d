// Decides which entries of a tag's folder a save may replace, and keeps the others.
#pragma once

#include <filesystem>

#include "deepspeed/checkpoint/file/folder.h"

namespace deepspeed::checkpoint {

/// Throws UsageError, describing what is there, if a save would replace anything but a checkpoint. That is a
/// file, a link, or a folder with other content or of another user. With `is_universal_save`, only a
/// universal checkpoint may be replaced.
void require_replaceable(const std::filesystem::path& tag_folder, bool is_universal_save);
/// Throws UsageError if `latest` or `latest_universal` is a folder.
void require_no_folder(const std::filesystem::path& latest);

/// Returns whether the folder has a manifest or a file named as in checkpoints.
bool holds_checkpoint(const std::filesystem::path& folder);

/// Adds the files of `from` that are not part of its checkpoint to `to`, durably. It makes hard links, or
/// copies if the file system has no hard links. Entries that `to` already has stay. Throws IoError.
void keep_others(const Folder& from, const Folder& to);

}  // namespace deepspeed::checkpoint
