// Makes the folder of a tag appear whole or not at all, by filling it under another name first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "deepspeed/checkpoint/file/folder.h"
#include "deepspeed/checkpoint/tag/manifest.h"
#include "deepspeed/checkpoint/tag/staging_lock.h"

namespace deepspeed::checkpoint {

/// Returns the name of the folder in which `tag` is filled, next to it: ".<name>.saving".
std::string staging_tag(const std::string& tag);

/// Creates the empty folder in which a tag is filled, and returns its lock. Makes it and its parents durable.
/// Removes what interrupted saves of any tag left, but nothing that a running process fills. Throws IoError,
/// also if another process fills this tag, or if the name is a link or belongs to another user.
[[nodiscard]] StagingLock begin_tag(const std::filesystem::path& dir, const std::string& tag);
/// Opens the folder in which a tag is filled. Creates it if begin_tag() ran on another machine. Throws
/// IoError like begin_tag().
Folder open_staging(const std::filesystem::path& dir, const std::string& tag);
/// Removes the folder in which a tag is filled, if possible. Ignores errors.
void abandon_tag(const std::filesystem::path& dir, const std::string& tag) noexcept;
/// Removes entries that `manifest` does not list from a tag's folder that is being filled. An interrupted
/// save on this machine may have left them, unseen by begin_tag() elsewhere. Throws IoError.
void remove_unlisted(const Folder& staging, const Manifest& manifest);
/// Gives the filled folder its final name, durably. It replaces an older tag of that name but keeps that
/// tag's other files. Does nothing if there is no filled folder, because another process on the machine or
/// file system has done it. Throws IoError. Throws UsageError if anything but a checkpoint of the same kind
/// has the name.
void publish_tag(const std::filesystem::path& dir, const std::string& tag);
/// Gives an older tag its name back after a crash in publish_tag(). If the tag exists, removes the older
/// folder. Does nothing if the older folder belongs to another user. Throws IoError.
void recover_tag(const std::filesystem::path& dir, const std::string& tag);

/// Removes the tags of find_tags_in_turn() except the `keep_last` newest. Keeps `newest`, which counts as one
/// of them, and tags that a link next to them refers to. Throws IoError; if a tag belongs to another user,
/// only after removing the others.
void prune_tags(const std::filesystem::path& dir, const std::string& newest, int64_t keep_last);

}  // namespace deepspeed::checkpoint
