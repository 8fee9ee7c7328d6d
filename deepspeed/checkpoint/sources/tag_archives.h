// The files of one tag are opened here, whoever reads them: each is held against the manifest and against
// those that were opened before it.
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

/// Opens files of a tag's folder. Files of one save have one mark; what those of DeepSpeed, which have none,
/// say of steps and ranks has to agree. Not for two threads at once.
class TagArchives {
 public:
  struct Options {
    /// Without a manifest looks at the marks of all files of the folder, and warns of what cannot be checked:
    /// one of several readers is enough.
    bool looks_around = true;
    bool trusts = false;  // another reader has verified the files: records need not be compared again
  };

  /// Reads the manifest, and without one the marks of all files. Throws CheckpointError where it is altered,
  /// and as open().
  explicit TagArchives(std::filesystem::path folder);
  TagArchives(std::filesystem::path folder, const Options& options);

  const Manifest& manifest() const { return manifest_; }

  /// Opens a file. Throws as DeferredArchive, and CheckpointError, naming both files, where it is not of the
  /// save that the others are of, or not the one that its name says.
  std::shared_ptr<DeferredArchive> open(const std::filesystem::path& file) const;
  /// Reads a whole file, as open() and DeferredArchive::load().
  Value read(const std::filesystem::path& file) const { return load_all(*open(file)); }

  /// Reads what no reader has asked for of records that were begun, and compares it: without a manifest a
  /// record has one checksum. Whoever has read what it wants calls it. Throws CheckpointError.
  void check_rest() const;
  /// Reads all of the open files that are in no manifest, and compares them with their own checksums. Throws
  /// CheckpointError.
  void verify() const;

  /// Says which save the opened files are of, as far as they say it: to be compared among ranks.
  std::string identity() const;
  /// Returns the number of ranks that saved; 0 where the files do not say it.
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
