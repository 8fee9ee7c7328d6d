// The files of a tag with their checksums: `<dir>/<tag>/manifest.json`, written after all of them.
// DeepSpeed's tools pass over it; a tag without one was written by DeepSpeed.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/checkpoint/file/file_sums.h"

namespace deepspeed::checkpoint {

struct Manifest {
  std::map<std::string, FileSums> files;  // by name inside of the tag's folder
  bool in_turn = false;                   // the training's own tag of its step, for checkpoint.keep_last

  /// Nothing for a file that is not listed.
  std::optional<FileSums> sums_of(const std::filesystem::path& file) const;
  /// Of a file that lies deeper in the tag's folder: "zero/<parameter>/fp32.pt".
  std::optional<FileSums> sums_of(const std::filesystem::path& file,
                                  const std::filesystem::path& tag_folder) const;
};

/// The form in which ranks tell each other of their files, and which the file holds.
std::string to_text(const Manifest& manifest);
/// Throws CheckpointError where the text is not a whole manifest.
Manifest parse_manifest(const std::string& text);

void write_manifest(const std::filesystem::path& folder, const Manifest& manifest);
/// An empty one where the folder has none. Throws CheckpointError, naming the file, where it is altered.
Manifest read_manifest(const std::filesystem::path& folder);

/// What is wrong with the folder's files at first sight (one is missing or of another size), by the file's
/// name; nothing where they are all there.
std::optional<std::string> find_damage(const std::filesystem::path& folder, const Manifest& manifest);

/// The tags whose files are all there, the newest first; without the universal checkpoints beside them.
std::vector<std::string> find_complete_tags(const std::filesystem::path& dir);
/// Those among them that the training wrote in turn, under the names that it gives: global_step<N>. A link to
/// a tag, one that got another name since, and one that was saved beside the turn are none.
std::vector<std::string> find_tags_in_turn(const std::filesystem::path& dir);

}  // namespace deepspeed::checkpoint
