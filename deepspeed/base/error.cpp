#include "deepspeed/base/error.h"

#include <filesystem>

namespace deepspeed {

std::string part_of_file(const char* path_text) {
  const std::filesystem::path path(path_text);
  std::string folder = path.parent_path().filename().string();
  for (auto part = path.begin(); part != path.end(); ++part) {
    if (*part == "deepspeed") folder = std::next(part)->string();
  }
  const std::string file = path.stem().string();
  return folder.empty() || folder == path.filename() || folder == file ? file : folder + "." + file;
}

}  // namespace deepspeed
