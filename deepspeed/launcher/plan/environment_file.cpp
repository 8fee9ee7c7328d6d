#include "deepspeed/launcher/plan/environment_file.h"

#include <cctype>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "deepspeed/base/error.h"

namespace deepspeed::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultName = ".deepspeed_env";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

/// Whether a name has letters, digits and underscores, no digit first, as a shell wants it.
bool is_name(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text.front())) != 0) return false;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') return false;
  }
  return true;
}

void read_into(Environment& variables, const fs::path& path) {
  std::ifstream file(path);
  if (!file) raise<IoError>("cannot read ", path.string(), "; remove it or make it readable");
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::string_view entry = trimmed(line);
    if (entry.empty() || entry.front() == '#') continue;
    const size_t equals = entry.find('=');
    const std::string_view name = trimmed(entry.substr(0, equals));
    if (equals == std::string_view::npos || !is_name(name)) {
      raise<UsageError>(path.string(), " line ", number, ": got '", entry.substr(0, 80),
                        "', expected KEY=VALUE");
    }
    variables[std::string(name)] = trimmed(entry.substr(equals + 1));
  }
}

fs::path folder_named(const Environment& base, const std::string& variable) {
  const auto found = base.find(variable);
  return found == base.end() ? fs::path() : fs::path(found->second);
}

}  // namespace

EnvironmentFiles read_environment_files(const Environment& base, const fs::path& working_folder) {
  fs::path name = folder_named(base, kEnvironmentFileVariable);
  if (name.empty()) name = kDefaultName;
  std::vector<fs::path> places;
  const fs::path home = folder_named(base, "HOME");
  if (!home.empty()) places.push_back(home / name);
  const fs::path here = working_folder / name;
  if (places.empty() || places.front() != here) places.push_back(here);
  EnvironmentFiles files;
  for (const fs::path& path : places) {
    std::error_code status;
    if (!fs::is_regular_file(path, status)) continue;
    read_into(files.variables, path);
    files.read.push_back(path);
  }
  return files;
}

}  // namespace deepspeed::launcher
