#include "deepspeed/accelerate/accelerator/project.h"

#include <charconv>
#include <map>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"

namespace deepspeed::accelerate {
namespace {

constexpr const char* kPrefix = "checkpoint_";

std::filesystem::path folder_of(const ProjectConfiguration& project) {
  if (project.project_dir.empty())
    raise<UsageError>(
        "automatic_checkpoint_naming is set, and project_dir is not: give the Accelerator a project_dir");
  return std::filesystem::path(project.project_dir) / "checkpoints";
}

/// Returns the checkpoints of the folder by their numbers. Other entries are left alone.
std::map<int, std::filesystem::path> checkpoints_in(const std::filesystem::path& folder) {
  std::map<int, std::filesystem::path> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const auto number = number_of_checkpoint(entry.path());
    if (number && !entry.is_symlink() && entry.is_directory()) found[*number] = entry.path();
  }
  return found;
}

}  // namespace

std::optional<int> number_of_checkpoint(const std::filesystem::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with(kPrefix)) return {};
  const char* const begin = name.data() + std::string(kPrefix).size();
  int number = 0;
  const auto [end, fault] = std::from_chars(begin, name.data() + name.size(), number);
  return fault == std::errc() && end == name.data() + name.size() ? std::optional(number) : std::nullopt;
}

std::filesystem::path next_checkpoint(const ProjectConfiguration& project, bool may_remove) {
  const auto folder = folder_of(project);
  const auto next = folder / (kPrefix + std::to_string(project.iteration));
  auto present = checkpoints_in(folder);
  if (!present.empty() && present.rbegin()->first >= project.iteration) {
    const int latest = present.rbegin()->first;
    raise<UsageError>("Checkpoint directory ", present.rbegin()->second.string(), " (", latest,
                      ") already exists, and the next one is ", project.iteration,
                      ": load_state() goes on from the latest, or set project_configuration().iteration to ",
                      latest + 1);
  }
  const auto most = project.total_limit ? static_cast<size_t>(std::max(*project.total_limit, 1)) : SIZE_MAX;
  if (!may_remove || present.size() + 1 <= most) return next;
  log::warning("[accelerate] Deleting ", present.size() + 1 - most,
               " checkpoints to make room for new checkpoint.");
  while (present.size() + 1 > most) {
    std::filesystem::remove_all(present.begin()->second);
    present.erase(present.begin());
  }
  return next;
}

std::filesystem::path latest_checkpoint(const ProjectConfiguration& project) {
  const auto folder = folder_of(project);
  const auto present = checkpoints_in(folder);
  if (present.empty())
    raise<UsageError>(folder.string(), " has no checkpoint_<number>, expected one that save_state() wrote");
  return present.rbegin()->second;
}

}  // namespace deepspeed::accelerate
