// Lists the files of a tag with their checksums: `<dir>/<tag>/manifest.json`, written after all other files.
// DeepSpeed's tools ignore it. A tag that DeepSpeed itself has written has no manifest.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/checkpoint/file/file_sums.h"
#include "deepspeed/checkpoint/file/folder.h"

namespace deepspeed::checkpoint {

struct Manifest {
  std::map<std::string, FileSums> files;  // by name inside the tag's folder
  bool in_turn = false;  // saved under the default tag, global_step<N>; counts for checkpoint.keep_last

  /// Returns the checksums of a file at the top of the tag's folder, if listed.
  std::optional<FileSums> sums_of(const std::filesystem::path& file) const;
  /// Returns the checksums of a file deeper in the tag's folder: "zero/<parameter>/fp32.pt".
  std::optional<FileSums> sums_of(const std::filesystem::path& file,
                                  const std::filesystem::path& tag_folder) const;
};

/// Returns the manifest as text, for the file and for sending to other ranks.
std::string to_text(const Manifest& manifest);
/// Parses a manifest. Throws CheckpointError if the text is incomplete or altered.
Manifest parse_manifest(const std::string& text);

void write_manifest(const Folder& folder, const Manifest& manifest);
/// Reads the folder's manifest; an empty one if there is none. Throws CheckpointError, naming the file, if it
/// is altered.
Manifest read_manifest(const std::filesystem::path& folder);

/// Describes a listed file that is missing, not regular or of another size. Nothing if all are right.
/// `is_needed` tells from a file's name in the manifest whether the file counts; null means all do.
std::optional<std::string> find_damage(const std::filesystem::path& folder, const Manifest& manifest,
                                       const std::function<bool(const std::string&)>& is_needed = nullptr);

/// Lists the tags whose files are all there, without universal checkpoints. The one with the newest manifest
/// file comes first.
std::vector<std::string> find_complete_tags(const std::filesystem::path& dir);
/// Lists those of find_complete_tags() that the training named itself: global_step<N>. Links to tags, renamed
/// tags and tags with a name chosen by the user are not listed.
std::vector<std::string> find_tags_in_turn(const std::filesystem::path& dir);

}  // namespace deepspeed::checkpoint
