// These functions say which entries of a tag's folder a save may replace, and keep the others.
#pragma once

#include <filesystem>

#include "deepspeed/checkpoint/file/folder.h"

namespace deepspeed::checkpoint {

/// Throws UsageError, saying what is there, where a save would take the place of something else than a
/// checkpoint (is_universal_save: than a universal one): a file, a link, a folder with other content or of
/// another user.
void require_replaceable(const std::filesystem::path& tag_folder, bool is_universal_save);
/// Throws UsageError where a folder has the name of `latest` or `latest_universal`.
void require_no_folder(const std::filesystem::path& latest);

/// Says whether the folder has a file that only a checkpoint has.
bool holds_checkpoint(const std::filesystem::path& folder);

/// Gives what `from` holds beside its checkpoint a place in `to` as well, durably: the same files under a
/// second name, or copies where the file system has no such names. What is in `to` already stays as it is.
/// Throws IoError.
void keep_others(const Folder& from, const Folder& to);

}  // namespace deepspeed::checkpoint
