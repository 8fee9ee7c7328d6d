// What a search tells a trial's processes, and what they report. Both are files in the trial's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"

namespace deepspeed::trial {

/// Names the variable that holds the path of a trial's job file.
inline constexpr const char* kJobVariable = "DEEPSPEED_TRIAL";

/// Describes one run of a trial: to which length it trains, and from where it goes on.
struct TrialJob {
  int64_t trial = 0;
  uint64_t seed = 0;
  Json hyperparameters = Json::object();
  Json data = Json::object();
  int64_t target_batches = 0;  ///< 0: target_epochs counts
  int64_t target_epochs = 0;
  int64_t target_records = 0;      ///< of all ranks; the program's batch size makes batches of them
  int64_t validation_batches = 0;  ///< period; 0: at the target alone
  int64_t checkpoint_batches = 0;  ///< period; 0: as the policy says
  std::string checkpoint_policy = "best";
  std::string metric;
  bool smaller_is_better = true;
  std::string latest_checkpoint;  ///< a folder; "": the trial begins
  std::string checkpoint_dir;
  std::string reports;  ///< the file that reports are added to
};

/// Returns the job that DEEPSPEED_TRIAL names, or nothing without a search. Throws IoError and ConfigError.
DEEPSPEED_API std::optional<TrialJob> job_from_environment();
/// Writes a job at once, whole.
void write_job(const std::filesystem::path& file, const TrialJob& job);

/// Adds a report, one line with a checksum, and returns when it is on the disk.
DEEPSPEED_API void append_report(const std::filesystem::path& file, const Json& report);
/// Returns the reports whose lines are whole. A line that a killed process left unfinished is skipped.
std::vector<Json> read_reports(const std::filesystem::path& file);

}  // namespace deepspeed::trial
