#include "deepspeed/launcher/node/interpreter.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <utility>
#include <vector>

#include <unistd.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/numbers.h"
#include "deepspeed/launcher/node/child.h"

namespace deepspeed::launcher {

std::string python_version(const std::string& interpreter, const Environment& environment,
                           const SignalState& signals, std::chrono::seconds patience) {
  const auto [output, status] =
      finish_child(start_child({interpreter, "--version"}, environment, true, SIGKILL, signals), patience);
  if (status == -1) {
    raise<UsageError>("the interpreter ", interpreter, " has not answered --version within ",
                      patience.count(), " s; PYTHON names another one");
  }
  return output.substr(0, std::min<size_t>(output.find('\n'), 80));
}

Environment source_script(const std::string& script, const Environment& environment,
                          const SignalState& signals, std::chrono::seconds patience) {
  std::string path = script;
  if (path.starts_with("~/")) path = value_of(environment, "HOME", "~") + path.substr(1);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    raise<UsageError>("--venv_script: '", path, "' is no file of this machine");
  // `.` would search a name without a slash in PATH.
  path = std::filesystem::absolute(path, error).string();
  const char* shell = ::access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
  // The script's own output goes to standard error. Its variables come from the kernel, separated by zeros,
  // since `env` may be another program after the script.
  constexpr const char* kCommand =
      "exec 3>&1 1>&2; . \"$1\" || exit 1; exec 1>&3 3>&-; exec /bin/cat /proc/self/environ";
  const auto [output, status] = finish_child(
      start_child({shell, "-c", kCommand, shell, path}, environment, true, SIGKILL, signals), patience);
  if (status == -1) {
    raise<UsageError>("--venv_script: sourcing '", path, "' by ", shell, " has not ended within ",
                      patience.count(), " s; it reads nothing from standard input");
  }
  if (status != 0 || output.empty())
    raise<UsageError>("--venv_script: sourcing '", path, "' by ", shell, " failed; its errors stand above");
  Environment variables;
  for (const std::string& entry : split(output, '\0')) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  for (const char* own : {"_", "SHLVL", "OLDPWD"}) variables.erase(own);
  return variables;
}

}  // namespace deepspeed::launcher
