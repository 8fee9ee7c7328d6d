#include "deepspeed/launcher/args/exit_code.h"

#include "deepspeed/launcher/args/announce.h"

namespace deepspeed::launcher {

int exit_code_of(const std::exception& error) {
  if (const auto* of_program = dynamic_cast<const ProgramError*>(&error)) return of_program->exit_code();
  const bool is_usage = dynamic_cast<const UsageError*>(&error) != nullptr ||
                        dynamic_cast<const NotSupportedError*>(&error) != nullptr;
  return is_usage ? kUsageExitCode : kErrorExitCode;
}

int exit_of_logged(const std::string& place, const std::function<int()>& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    announce(log::Level::kError, place, error.what());
    return exit_code_of(error);
  }
}

}  // namespace deepspeed::launcher
