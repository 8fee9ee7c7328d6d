// The folder of a tag appears whole or not at all: it is filled under another name first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "deepspeed/checkpoint/file/folder.h"
#include "deepspeed/checkpoint/tag/manifest.h"
#include "deepspeed/checkpoint/tag/staging_lock.h"

namespace deepspeed::checkpoint {

/// Returns the name under which the folder of `tag` is filled, beside it: ".<name>.saving".
std::string staging_tag(const std::string& tag);

/// Makes the empty folder in which a tag is filled, durably with those above it. It removes what interrupted
/// saves of any tag left; what a living process fills stays. Throws IoError, also where that is this tag, or
/// where a link or another user's folder has the name.
[[nodiscard]] StagingLock begin_tag(const std::filesystem::path& dir, const std::string& tag);
/// Opens the folder in which a tag is filled; makes it where begin_tag() was called on another machine.
/// Throws IoError as begin_tag().
Folder open_staging(const std::filesystem::path& dir, const std::string& tag);
/// Removes the folder in which a tag is filled, where it can.
void abandon_tag(const std::filesystem::path& dir, const std::string& tag) noexcept;
/// Removes from the staging folder what `manifest` does not list. An interrupted save on this machine may
/// have left it where begin_tag() on another machine has not seen it. Throws IoError.
void remove_unlisted(const Folder& staging, const Manifest& manifest);
/// Gives the filled folder its name, durably, in place of an older tag of that name, whose other files it
/// keeps. Does nothing where there is no filled folder: another process of the machine or file system has
/// done it. Throws IoError, and UsageError where something else than a checkpoint of its kind has that name.
void publish_tag(const std::filesystem::path& dir, const std::string& tag);
/// Brings an older folder of this user back that a crash in the middle of publish_tag() left under another
/// name. Throws IoError.
void recover_tag(const std::filesystem::path& dir, const std::string& tag);

/// Removes the tags written in turn (find_tags_in_turn()) beyond the `keep_last` newest; never `newest`, nor
/// one that a link beside it names. Throws IoError, at the end also where another user has one of them.
void prune_tags(const std::filesystem::path& dir, const std::string& newest, int64_t keep_last);

}  // namespace deepspeed::checkpoint
