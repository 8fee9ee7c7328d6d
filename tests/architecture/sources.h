// The files of the source tree, as the tests of this folder read them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace deepspeed::testing {

struct Source {
  std::filesystem::path path;  // relative to the root
  std::string folder;  // inside deepspeed/ or python/, down to two levels: "zero/update", "core/engine"
  std::string text;
};

/// Returns the root of the source tree.
const std::filesystem::path& source_root();
std::string read_source(const std::filesystem::path& path);

/// Returns the first two folders of a path inside deepspeed/ or python/. Twins hold the same symbols and
/// share a name: the place of no_cuda/ is that of cuda/.
std::string place_of(const std::filesystem::path& folder);
std::string first_of(const std::string& place);

/// Returns all C++ files below a folder of the root.
std::vector<Source> sources(const std::filesystem::path& below = "deepspeed");
/// Returns those of the library and of the Python package's module, whose folders the tables name.
std::vector<Source> layered_sources();

}  // namespace deepspeed::testing
