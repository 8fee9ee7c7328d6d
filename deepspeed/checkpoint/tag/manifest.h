// A manifest lists the files of a tag with their checksums: `<dir>/<tag>/manifest.json`, written after all of
// them. DeepSpeed's tools pass over it; a tag without one was written by DeepSpeed.
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
  std::map<std::string, FileSums> files;  // by name inside of the tag's folder
  bool in_turn = false;                   // the training's own tag of its step, for checkpoint.keep_last

  /// Returns the checksums of a file at the top of the tag's folder; nothing for one that is not listed.
  std::optional<FileSums> sums_of(const std::filesystem::path& file) const;
  /// Returns the checksums of a file that lies deeper in the tag's folder: "zero/<parameter>/fp32.pt".
  std::optional<FileSums> sums_of(const std::filesystem::path& file,
                                  const std::filesystem::path& tag_folder) const;
};

/// Writes a manifest as the text that the file holds and ranks send each other.
std::string to_text(const Manifest& manifest);
/// Reads a manifest from its text. Throws CheckpointError where the text is not a whole one.
Manifest parse_manifest(const std::string& text);

void write_manifest(const Folder& folder, const Manifest& manifest);
/// Reads the folder's manifest; an empty one where it has none. Throws CheckpointError, naming the file,
/// where it is altered.
Manifest read_manifest(const std::filesystem::path& folder);

/// Says what is wrong with the folder's files at first sight: one is missing or of another size. Nothing
/// where they are all there. `is_needed`: whether a file counts, by its name in the manifest; null: all do.
std::optional<std::string> find_damage(const std::filesystem::path& folder, const Manifest& manifest,
                                       const std::function<bool(const std::string&)>& is_needed = nullptr);

/// Lists the tags whose files are all there, the newest first, without universal checkpoints.
std::vector<std::string> find_complete_tags(const std::filesystem::path& dir);
/// Lists the complete tags that the training wrote in turn, under the names that it gives: global_step<N>. A
/// link to a tag, a renamed one, and one that was saved with a name of its own are not among them.
std::vector<std::string> find_tags_in_turn(const std::filesystem::path& dir);

}  // namespace deepspeed::checkpoint
