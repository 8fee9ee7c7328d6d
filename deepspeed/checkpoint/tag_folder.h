// The folder of a tag appears whole or not at all: it is filled under another name first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace deepspeed::checkpoint {

/// The name under which the folder of `tag` is filled, beside it: ".<name>.saving".
std::string staging_tag(const std::string& tag);

/// Makes the empty folder in which a tag is filled; what an interrupted saving left there goes. Throws
/// IoError.
void begin_tag(const std::filesystem::path& dir, const std::string& tag);
/// Gives the filled folder its name, durably, in place of an older one of that name. Does nothing where there
/// is no such folder: another process of the same machine or file system has done it. Throws IoError.
void publish_tag(const std::filesystem::path& dir, const std::string& tag);
/// Brings an older folder back that a crash in the middle of publish_tag() left under another name. Throws
/// IoError.
void recover_tag(const std::filesystem::path& dir, const std::string& tag);

/// Removes the complete tags beyond the `keep_last` newest, never `tag`. Throws IoError.
void prune_tags(const std::filesystem::path& dir, const std::string& tag, int64_t keep_last);

}  // namespace deepspeed::checkpoint
