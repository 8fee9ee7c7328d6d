#include "deepspeed/launcher/plan/program.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/launcher/args/numbers.h"

namespace deepspeed::launcher {
namespace {

constexpr int kNotFound = 127;
constexpr int kNotExecutable = 126;

template <class... Parts>
[[noreturn]] void refuse(int exit_code, const Parts&... parts) {
  throw ProgramError(message("[launcher.program] ", parts...), exit_code);
}

bool is_file(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool is_executable_file(const std::string& path) {
  return is_file(path) && ::access(path.c_str(), X_OK) == 0;
}

bool is_source(const std::string& path) {
  for (const char* suffix : {".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hpp"}) {
    if (path.ends_with(suffix)) return true;
  }
  return false;
}

[[noreturn]] void refuse_source(const std::string& path) {
  refuse(kNotExecutable, path, " is a source file, no program: compile it, and start what that makes");
}

/// Throws ProgramError for a file that is neither ELF nor a `#!` script. The kernel cannot run it. A shell
/// would run it as a script, but this program does not guess.
void check_format(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!file) return;  // executable but unreadable: the kernel decides
  std::getline(file, line);
  if (line.starts_with("\x7f"
                       "ELF"))
    return;
  if (!line.starts_with("#!")) {
    if (is_source(path)) refuse_source(path);
    refuse(kNotExecutable, path,
           " is neither a program for this machine nor a script with a '#!' first line");
  }
  std::string interpreter;
  std::istringstream(line.substr(2)) >> interpreter;
  if (!is_executable_file(interpreter)) {
    refuse(kNotExecutable, path, " names the interpreter '", interpreter,
           "' in its '#!' line, which cannot be executed");
  }
}

std::string search(const std::string& name, const std::string& search_path) {
  for (const std::string& folder : split(search_path, ':')) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable_file(candidate)) return candidate;
  }
  const char* hint = is_file(name) ? "; for the file in this folder write ./" : "";
  refuse(kNotFound, "program '", name, "' not found in PATH", hint, *hint ? name : "");
}

void require_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) refuse(kNotFound, "program '", path, "' not found");
  if (S_ISDIR(status.st_mode)) refuse(kNotExecutable, "'", path, "' is a folder, expected a program");
}

}  // namespace

void require_readable_file(const std::string& path) {
  require_file(path);
  if (::access(path.c_str(), R_OK) != 0) refuse(kNotExecutable, "'", path, "' is not readable");
}

std::string find_program(const std::string& name, const std::string& search_path) {
  if (is_source(name) && is_file(name) && !is_executable_file(name)) refuse_source(name);
  const std::string path = name.find('/') == std::string::npos ? search(name, search_path) : name;
  require_file(path);
  if (!is_executable_file(path)) {
    refuse(kNotExecutable, "'", path, "' is not executable; chmod +x makes it so");
  }
  check_format(path);
  return path;
}

namespace {

/// Returns PATH followed by this program's folder. Another machine may not have that folder in its PATH.
std::string path_with_own_folder(const Environment& environment) {
  std::error_code unknown;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::string path = value_of(environment, "PATH", kDefaultPath);
  return unknown ? path : path + ":" + own.parent_path().string();
}

std::string find_python(const Environment& environment) {
  const std::string search_path = value_of(environment, "PATH", kDefaultPath);
  const std::string chosen = value_of(environment, "PYTHON");
  if (!chosen.empty()) return find_program(chosen, search_path);
  for (const char* name : {"python3", "python"}) {
    try {
      return find_program(name, search_path);
    } catch (const ProgramError&) {
      continue;
    }
  }
  throw ProgramError(
      "[launcher.program] neither python3 nor python found in PATH; PYTHON=path names another interpreter",
      127);
}

}  // namespace

std::vector<std::string> ProgramCommand::args_of_rank(int local_rank,
                                                      const std::vector<std::string>& own_args) const {
  std::vector<std::string> args = leading_args;
  if (takes_local_rank) args.push_back("--local_rank=" + std::to_string(local_rank));
  args.insert(args.end(), own_args.begin(), own_args.end());
  return args;
}

ProgramCommand find_program_command(const LaunchArgs& args, const Environment& environment) {
  if (!args.runs_python()) return {find_program(args.program, path_with_own_folder(environment)), {}, false};
  if (!args.module) require_readable_file(args.program);
  ProgramCommand command{find_python(environment), {"-u"}, !args.no_local_rank};
  if (args.module) command.leading_args.emplace_back("-m");
  command.leading_args.push_back(args.program);
  return command;
}

}  // namespace deepspeed::launcher
