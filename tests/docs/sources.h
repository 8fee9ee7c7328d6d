// The text of the project's files, for tests that hold the pages against it.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/places/places.h"

namespace deepspeed::testing {

inline const std::filesystem::path kRoot = testing::source_folder();
inline const std::filesystem::path kBuild = testing::build_folder();

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

/// Paths of the files below a folder of the project whose names end so.
inline std::vector<std::filesystem::path> files_below(const std::string& folder,
                                                      const std::set<std::string>& extensions) {
  std::vector<std::filesystem::path> result;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / folder)) {
    if (extensions.contains(entry.path().extension().string())) result.push_back(entry.path());
  }
  return result;
}

}  // namespace deepspeed::testing
