// The folder of a tag appears whole or not at all: it is filled under another name first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "deepspeed/checkpoint/tag/manifest.h"
#include "deepspeed/checkpoint/tag/staging_lock.h"

namespace deepspeed::checkpoint {

/// The name under which the folder of `tag` is filled, beside it: ".<name>.saving".
std::string staging_tag(const std::string& tag);

/// Makes the empty folder in which a tag is filled, durably with those above it. What interrupted savings
/// left beside it goes, of this tag and of others; what a living process fills stays. Throws IoError, also
/// where that is this tag.
[[nodiscard]] StagingLock begin_tag(const std::filesystem::path& dir, const std::string& tag);
/// Removes from the folder that is filled what `manifest` does not list: left by an interrupted saving on
/// this machine, which begin_tag() on another one has not seen. Throws IoError.
void remove_unlisted(const std::filesystem::path& dir, const std::string& tag, const Manifest& manifest);
/// Gives the filled folder its name, durably, in place of an older one of that name; what the older one held
/// beside its checkpoint is in the new one too. Does nothing where there is no such folder: another process
/// of the same machine or file system has done it. Throws IoError, and UsageError where something else than a
/// checkpoint of its kind has that name.
void publish_tag(const std::filesystem::path& dir, const std::string& tag);
/// Brings an older folder back that a crash in the middle of publish_tag() left under another name. Throws
/// IoError.
void recover_tag(const std::filesystem::path& dir, const std::string& tag);

/// Removes, of the tags that the training wrote in turn (find_tags_in_turn()), those beyond the `keep_last`
/// newest; never `newest`, nor one that a link beside it names. Throws IoError.
void prune_tags(const std::filesystem::path& dir, const std::string& newest, int64_t keep_last);

}  // namespace deepspeed::checkpoint
