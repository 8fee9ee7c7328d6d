// Facts about files and folders that several layers ask the system for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <system_error>

#include <sys/stat.h>

namespace deepspeed {

/// Returns whether both describe one file or folder.
inline bool is_same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/// Returns the bytes that this user can still write below `folder`; nothing if unknown.
inline std::optional<uint64_t> free_bytes(const std::filesystem::path& folder) {
  std::error_code unknown;
  const auto space = std::filesystem::space(folder, unknown);
  return unknown ? std::nullopt : std::optional<uint64_t>(space.available);
}

}  // namespace deepspeed
