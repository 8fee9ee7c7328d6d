// The folder of a tag appears whole or not at all: it is filled under another name first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "deepspeed/checkpoint/manifest.h"

namespace deepspeed::checkpoint {

/// The name under which the folder of `tag` is filled, beside it: ".<name>.saving".
std::string staging_tag(const std::string& tag);

/// While it lives, other processes see that a tag's folder is being filled. The system ends it with the
/// process, however that ends.
class StagingLock {
 public:
  StagingLock() = default;
  explicit StagingLock(const std::filesystem::path& folder);
  ~StagingLock();
  StagingLock(StagingLock&& other) noexcept;
  StagingLock& operator=(StagingLock&& other) noexcept;

  /// False where another one holds it, or where the file system has no locks.
  bool is_held() const { return handle_ >= 0; }

 private:
  int handle_ = -1;
};

/// Makes the empty folder in which a tag is filled, durably with those above it. What interrupted savings
/// left beside it goes, of this tag and of others; what a living process fills stays. Throws IoError.
[[nodiscard]] StagingLock begin_tag(const std::filesystem::path& dir, const std::string& tag);
/// Removes from the folder that is filled what `manifest` does not list: left by an interrupted saving on
/// this machine, which begin_tag() on another one has not seen. Throws IoError.
void remove_unlisted(const std::filesystem::path& dir, const std::string& tag, const Manifest& manifest);
/// Gives the filled folder its name, durably, in place of an older one of that name. Does nothing where there
/// is no such folder: another process of the same machine or file system has done it. Throws IoError.
void publish_tag(const std::filesystem::path& dir, const std::string& tag);
/// Brings an older folder back that a crash in the middle of publish_tag() left under another name. Throws
/// IoError.
void recover_tag(const std::filesystem::path& dir, const std::string& tag);

/// Removes the complete tags in the folder of `tag` beyond the `keep_last` newest, never `tag` nor the one
/// that is `also_kept`. A tag without a manifest is not ours and stays. Throws IoError.
void prune_tags(const std::filesystem::path& dir, const std::string& tag, int64_t keep_last,
                const std::string& also_kept = "");

}  // namespace deepspeed::checkpoint
