#include "deepspeed/trial/runner/job.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <unistd.h>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/hash.h"
#include "deepspeed/base/json_file.h"

namespace deepspeed::trial {
namespace {

/// Calls visitor(name, member) for each member of a job.
template <class Job, class Visitor>
void visit_members(Job& job, const Visitor& visitor) {
  visitor("trial", job.trial);
  visitor("seed", job.seed);
  visitor("hyperparameters", job.hyperparameters);
  visitor("data", job.data);
  visitor("target_batches", job.target_batches);
  visitor("target_epochs", job.target_epochs);
  visitor("target_records", job.target_records);
  visitor("validation_batches", job.validation_batches);
  visitor("checkpoint_batches", job.checkpoint_batches);
  visitor("checkpoint_policy", job.checkpoint_policy);
  visitor("metric", job.metric);
  visitor("smaller_is_better", job.smaller_is_better);
  visitor("latest_checkpoint", job.latest_checkpoint);
  visitor("checkpoint_dir", job.checkpoint_dir);
  visitor("reports", job.reports);
}

[[noreturn]] void fail_to(const char* action, const std::filesystem::path& file) {
  raise<IoError>("cannot ", action, " ", file.string(), ": ", std::strerror(errno));
}

std::string sum_of(const std::string& text) {
  Hash hash;
  hash.add(text);
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(hash.value()));
  return digits;
}

}  // namespace

std::optional<TrialJob> job_from_environment() {
  const auto path = env::get(kJobVariable);
  if (!path) return {};
  const Json json = read_json_file(*path);
  TrialJob job;
  visit_members(job, [&](const char* name, auto& member) {
    if (!json.is_object() || !json.contains(name))
      raise<ConfigError>(*path, ": ", name, " is missing, expected the file that a search writes");
    try {
      member = json[name].template get<std::decay_t<decltype(member)>>();
    } catch (const Json::exception&) {
      raise<ConfigError>(*path, ": ", name, ": got ", json_excerpt(json[name]),
                         ", which a search does not write");
    }
  });
  return job;
}

void write_job(const std::filesystem::path& file, const TrialJob& job) {
  Json json = Json::object();
  visit_members(job, [&](const char* name, const auto& member) { json[name] = member; });
  const std::filesystem::path partial = file.string() + ".partial";
  std::ofstream out(partial);
  out << json.dump(2) << "\n";
  out.close();
  if (!out || ::rename(partial.c_str(), file.c_str()) != 0) fail_to("write", file);
}

void append_report(const std::filesystem::path& file, const Json& report) {
  const Descriptor opened(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!opened) fail_to("open", file);
  const std::string text = report.dump();
  // A line that was cut off before gets its end here.
  const std::string line = "\n" + sum_of(text) + " " + text + "\n";
  if (::write(opened.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()) ||
      ::fsync(opened.get()) != 0)
    fail_to("write", file);
}

std::vector<Json> read_reports(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<Json> reports;
  for (std::string line; std::getline(in, line);) {
    const size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    const std::string text = line.substr(space + 1);
    if (line.substr(0, space) != sum_of(text)) continue;
    reports.push_back(parse_json(text, file.string()));
  }
  return reports;
}

}  // namespace deepspeed::trial
