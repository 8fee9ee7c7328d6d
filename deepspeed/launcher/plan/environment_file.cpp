#include "deepspeed/launcher/plan/environment_file.h"

#include <cctype>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/text_file.h"

namespace deepspeed::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultName = ".deepspeed_env";
constexpr size_t kMaxVariablesBytes = size_t{16} << 20;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n\f\v";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

/// Returns whether a shell accepts the name: letters, digits and underscores, no digit first.
bool is_name(std::string_view text) {
  if (text.empty() || std::isdigit(static_cast<unsigned char>(text.front())) != 0) return false;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') return false;
  }
  return true;
}

/// Returns whether another user put the file into a folder that everyone may write to. The kernel applies the
/// same rule to its own files (fs.protected_regular).
bool is_of_a_stranger(const fs::path& path) {
  struct stat folder {
  }, entry{}, file{};
  const fs::path parent = path.parent_path();
  if (::stat(parent.c_str(), &folder) != 0 || ::lstat(path.c_str(), &entry) != 0 ||
      ::stat(path.c_str(), &file) != 0)
    return false;
  const auto is_trusted = [&](uid_t user) {
    return user == ::geteuid() || user == 0 || user == folder.st_uid;
  };
  return (folder.st_mode & S_IWOTH) != 0 && !(is_trusted(entry.st_uid) && is_trusted(file.st_uid));
}

void read_into(Environment& variables, const fs::path& path) {
  if (is_of_a_stranger(path)) {
    raise<UsageError>(
        path.string(), " was put there by another user, who would choose the variables of all ranks, ",
        "since everyone may write to that folder; start from another folder, or name another file by ",
        kEnvironmentFileVariable);
  }
  std::istringstream lines(read_text_file(path, kMaxVariablesBytes, "file of variables"));
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string_view entry = trimmed(line);
    if (entry.empty() || entry.front() == '#') continue;
    const size_t equals = entry.find('=');
    const std::string_view name = trimmed(entry.substr(0, equals));
    if (equals == std::string_view::npos || !is_name(name)) {
      raise<UsageError>(path.string(), " line ", number, ": got '", entry.substr(0, 80),
                        "', expected KEY=VALUE");
    }
    if (entry.find('\0') != std::string_view::npos)
      raise<UsageError>(path.string(), " line ", number, ": ", name,
                        " has a byte 0, which no variable can have");
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
