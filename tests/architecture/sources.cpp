#include "tests/architecture/sources.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "tests/places/places.h"

namespace deepspeed::testing {
namespace fs = std::filesystem;

const fs::path& source_root() {
  static const fs::path root = source_folder();
  return root;
}

std::string read_source(const fs::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string place_of(const fs::path& folder) {
  std::string place;
  int depth = 0;
  for (const fs::path& part : folder) {
    if (++depth > 2) break;
    const std::string name = part.string();
    place += (place.empty() ? "" : "/") + (name.starts_with("no_") ? name.substr(3) : name);
  }
  return place;
}

std::string first_of(const std::string& place) { return place.substr(0, place.find('/')); }

std::vector<Source> sources(const fs::path& below) {
  std::vector<Source> result;
  for (const auto& entry : fs::recursive_directory_iterator(source_root() / below)) {
    const std::string extension = entry.path().extension();
    if (extension != ".h" && extension != ".cpp" && extension != ".cu" && extension != ".cuh") continue;
    const fs::path inside = fs::relative(entry.path(), source_root() / below);
    result.push_back({fs::relative(entry.path(), source_root()), place_of(inside.parent_path()),
                      read_source(entry.path())});
  }
  return result;
}

std::vector<Source> layered_sources() {
  std::vector<Source> result = sources();
  for (Source& source : sources("python")) result.push_back(std::move(source));
  return result;
}

}  // namespace deepspeed::testing
