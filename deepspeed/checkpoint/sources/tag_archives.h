// Opens the files of one tag for all readers. Each file is compared with the manifest and with the files
// opened before.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/checkpoint/archive/deferred_archive.h"
#include "deepspeed/checkpoint/tag/manifest.h"
#include "deepspeed/checkpoint/tag/save_mark.h"

namespace deepspeed::checkpoint {

/// Opens files of a tag's folder. Files of one save share a mark (tag/save_mark.h). DeepSpeed's files have no
/// mark, so their numbers of steps and ranks have to agree. Not thread-safe.
class TagArchives {
 public:
  struct Options {
    /// Compares the marks of all files in the folder if there is no manifest. Warns of what cannot be
    /// checked. Only one of several readers should do so.
    bool looks_around = true;
    bool trusts = false;  // another reader has verified the files, so records need no check
  };

  /// Reads the manifest, or without one the marks of all files. Throws CheckpointError if the manifest is
  /// altered, or if the marks are of two saves or a file was renamed.
  explicit TagArchives(std::filesystem::path folder);
  TagArchives(std::filesystem::path folder, const Options& options);

  const Manifest& manifest() const { return manifest_; }

  /// Opens a file. Throws what the constructor of DeferredArchive throws. Also throws CheckpointError if the
  /// file is from another save than those opened before, naming both, or if its mark names another file.
  std::shared_ptr<DeferredArchive> open(const std::filesystem::path& file) const;
  /// Reads a whole file, like open() and DeferredArchive::load().
  Value read(const std::filesystem::path& file) const { return load_all(*open(file)); }

  /// Reads and checks the rest of records that were partly read. Call it after the last read: without a
  /// manifest only a whole record has a checksum. Throws CheckpointError.
  void check_rest() const;
  /// Checks all open files that are in no manifest against their own checksums. Throws CheckpointError.
  void verify() const;

  /// Returns a text that identifies the save of the opened files, to compare across ranks. Without marks the
  /// text tells only the step. It is "" if the step is unknown.
  std::string identity() const;
  /// Returns the number of ranks that saved; 0 if the files do not tell.
  int64_t num_ranks() const { return first_ ? first_->mark.ranks : 0; }

 private:
  struct Marked {
    std::filesystem::path file;
    SaveMark mark;
  };
  struct Claim {
    std::filesystem::path file;
    int64_t value = 0;
  };

  void look_around() const;
  static Value load_all(const DeferredArchive& archive) { return archive.load(archive.value()); }
  void compare(const std::filesystem::path& file, const DeferredArchive& archive) const;
  void compare_mark(const std::filesystem::path& file, const SaveMark& mark) const;
  void compare_claims(const std::filesystem::path& file, const Value& value) const;
  void compare_claim(const std::filesystem::path& file, const std::string& what, int64_t value) const;
  void warn_of_mixture(const std::filesystem::path& file) const;

  std::filesystem::path folder_;
  Options options_;
  Manifest manifest_;
  mutable std::optional<Marked> first_;
  mutable std::optional<std::filesystem::path> without_mark_;
  mutable bool has_warned_ = false;
  mutable std::map<std::string, Claim> claims_;
  mutable std::vector<std::weak_ptr<DeferredArchive>> open_;
};

}  // namespace deepspeed::checkpoint
