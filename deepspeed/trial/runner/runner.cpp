// One loop: start trials that train while slots are free, read what they report, and take ended processes.
//
// What a trial reports lies in its folder first, then in the journal, and only then does the searcher see it. So
// a kill at any moment loses no report: the next run reads the files again, and reports that the journal has are
// not taken twice. A run that ends without a report at its target has failed.
#include "deepspeed/trial/runner/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <map>
#include <ostream>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include <sys/wait.h>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/node/child.h"
#include "deepspeed/launcher/plan/environment.h"
#include "deepspeed/trial/runner/job.h"
#include "deepspeed/trial/search/event.h"
#include "deepspeed/trial/search/journal.h"

namespace deepspeed::trial {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRestart = "restart";

/// Returns a checkpoint's number of batches, from its name, or -1.
int64_t batches_of_checkpoint(const fs::path& folder) {
  const std::string name = folder.filename().string();
  if (!name.starts_with("batch")) return -1;
  return std::atoll(name.c_str() + 5);
}

/// Runs one experiment.
class Runner {
 public:
  Runner(const Experiment& experiment, const RunOptions& options, std::ostream& out)
      : experiment_(experiment),
        options_(options),
        out_(out),
        searcher_(experiment, experiment.seed),
        journal_(options.folder / "journal.jsonl", digest_of(experiment), experiment.seed) {
    for (const Json& entry : journal_.entries()) replay(entry);
  }
  ~Runner() { stop_all(); }

  Searcher run() {
    while (!searcher_.is_done()) {
      for (const Trial& trial : searcher_.trials()) {
        if (trial.status == TrialStatus::kTraining && !running_.contains(trial.number)) start_if_free(trial);
      }
      for (const auto& [number, pid] : std::map<int64_t, pid_t>(running_)) watch(number, pid);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    write_result();
    return std::move(searcher_);
  }

 private:
  void replay(const Json& entry) {
    if (const auto event = event_of(entry)) {
      note(*event);
      searcher_.take(*event);
    } else if (entry.value("event", "") == kRestart) {
      ++restarts_[entry["trial"].get<int64_t>()];
    }
  }

  void note(const Event& event) {
    if (event.kind == Event::Kind::kReport) taken_[event.trial].insert(event.length);
  }

  void take(const Event& event) {
    journal_.append(json_of(event));
    note(event);
    searcher_.take(event);
  }

  fs::path folder_of(int64_t trial) const { return options_.folder / ("trial_" + std::to_string(trial)); }

  int64_t slots_of_trial() const { return std::max<int64_t>(experiment_.slots_per_trial, 1); }

  void start_if_free(const Trial& trial) {
    const int64_t used = static_cast<int64_t>(running_.size()) * slots_of_trial();
    if (used + slots_of_trial() > options_.slots) return;
    take_reports(trial.number);  // of a run before this one was killed
    if (searcher_.trials()[static_cast<size_t>(trial.number)].status != TrialStatus::kTraining) return;
    if (has_reported(trial)) return;
    start(searcher_.trials()[static_cast<size_t>(trial.number)]);
  }

  bool has_reported(const Trial& trial) const {
    const auto found = taken_.find(trial.number);
    return found != taken_.end() && found->second.contains(trial.target);
  }

  void start(const Trial& trial) {
    const fs::path folder = fs::absolute(folder_of(trial.number));
    fs::create_directories(folder / "checkpoints");
    write_job(folder / "job.json", job_of(trial, folder));
    const char* into_log = "exec \"$@\" >>\"$0\" 2>&1";
    std::vector<std::string> words = {"/bin/sh",         "-c",
                                      into_log,          (folder / "log.txt").string(),
                                      options_.launcher, "--no_local_rank",
                                      "--num_procs",     std::to_string(slots_of_trial())};
    if (!experiment_.entrypoint.front().ends_with(".py")) words.emplace_back("--no_python");
    words.insert(words.end(), experiment_.entrypoint.begin(), experiment_.entrypoint.end());
    launcher::Environment environment = launcher::current_environment();
    environment[kJobVariable] = (folder / "job.json").string();
    const auto child = launcher::start_child(words, environment, false, SIGKILL, launcher::current_signals());
    running_[trial.number] = child.pid;
    started_target_[trial.number] = trial.target;
    out_ << "trial " << trial.number << ": trains to " << trial.target << " "
         << name_of(experiment_.searcher.max_length.unit) << std::endl;
  }

  TrialJob job_of(const Trial& trial, const fs::path& folder) const {
    TrialJob job;
    job.trial = trial.number;
    job.seed = experiment_.seed + static_cast<uint64_t>(trial.number);
    job.hyperparameters = trial.hyperparameters;
    job.data = experiment_.data;
    const LengthUnit unit = experiment_.searcher.max_length.unit;
    (unit == LengthUnit::kBatches  ? job.target_batches
     : unit == LengthUnit::kEpochs ? job.target_epochs
                                   : job.target_records) = trial.target;
    const auto in_batches = [](const Length& length) {
      return length.unit == LengthUnit::kBatches ? length.amount : 0;
    };
    job.validation_batches = in_batches(experiment_.min_validation_period);
    job.checkpoint_batches = in_batches(experiment_.min_checkpoint_period);
    const CheckpointPolicy policy = experiment_.checkpoint_policy;
    job.checkpoint_policy = policy == CheckpointPolicy::kAll    ? "all"
                            : policy == CheckpointPolicy::kBest ? "best"
                                                                : "none";
    job.metric = experiment_.searcher.metric;
    job.smaller_is_better = experiment_.searcher.smaller_is_better;
    job.checkpoint_dir = (folder / "checkpoints").string();
    job.reports = (folder / "reports.txt").string();
    job.latest_checkpoint = latest_checkpoint(folder);
    return job;
  }

  /// Returns the latest checkpoint that a report says is whole; "" without one.
  static std::string latest_checkpoint(const fs::path& folder) {
    std::string latest;
    int64_t most = -1;
    for (const Json& report : read_reports(folder / "reports.txt")) {
      if (!report.contains("checkpoint")) continue;
      const fs::path path = folder / "checkpoints" / report["checkpoint"].get<std::string>();
      if (batches_of_checkpoint(path) <= most || !fs::is_directory(path)) continue;
      most = batches_of_checkpoint(path);
      latest = path.string();
    }
    return latest;
  }

  /// Takes the reports that the journal does not have.
  void take_reports(int64_t number) {
    for (const Json& report : read_reports(folder_of(number) / "reports.txt")) {
      if (!report.contains("metric")) continue;
      const Trial& trial = searcher_.trials()[static_cast<size_t>(number)];
      const auto length = report["length"].get<int64_t>();
      const bool is_new = !taken_[number].contains(length) && length <= trial.target;
      if (trial.status != TrialStatus::kTraining || !is_new) continue;
      const Json& metric = report["metric"];
      take(Event::report(number, length, metric.is_number() ? metric.get<double>() : std::nan("")));
      out_ << "trial " << number << ": " << experiment_.searcher.metric << " is " << metric << " at "
           << length << std::endl;
    }
  }

  void watch(int64_t number, pid_t pid) {
    take_reports(number);
    int status = 0;
    if (::waitpid(pid, &status, WNOHANG) == 0) {
      if (searcher_.trials()[static_cast<size_t>(number)].status == TrialStatus::kStopped)
        ::kill(-pid, SIGTERM);
      return;
    }
    running_.erase(number);
    take_reports(number);
    const Trial& trial = searcher_.trials()[static_cast<size_t>(number)];
    remove_old_checkpoints(number);
    if (trial.status != TrialStatus::kTraining ||
        (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !is_short(number)))
      return;
    fail(number, status);
  }

  /// Returns whether the trial has not reported at the target of this run, so that the run ended too early.
  bool is_short(int64_t number) { return !taken_[number].contains(started_target_[number]); }

  void fail(int64_t number, int status) {
    const std::string how = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                            : WEXITSTATUS(status) != 0
                                ? "exit code " + std::to_string(WEXITSTATUS(status))
                                : "no " + experiment_.searcher.metric + " at its target";
    const int64_t before = restarts_[number]++;
    out_ << "trial " << number << " ended with " << how << " (" << (folder_of(number) / "log.txt").string()
         << ")";
    if (before >= experiment_.max_restarts) {
      out_ << ": it has failed" << std::endl;
      take(Event::failure(number));
      return;
    }
    out_ << ": it starts again, " << before + 1 << " of " << experiment_.max_restarts << std::endl;
    journal_.append({{"event", kRestart}, {"trial", number}});
  }

  /// Keeps the latest checkpoints of a trial and its best ones, as the experiment says.
  void remove_old_checkpoints(int64_t number) {
    std::map<int64_t, fs::path> present;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder_of(number) / "checkpoints", error))
      if (batches_of_checkpoint(entry.path()) >= 0)
        present[batches_of_checkpoint(entry.path())] = entry.path();
    std::vector<std::pair<double, int64_t>> scores;
    for (const Json& report : read_reports(folder_of(number) / "reports.txt")) {
      if (!report.contains("metric") || !report["metric"].is_number()) continue;
      const auto metric = report["metric"].get<double>();
      scores.emplace_back(experiment_.searcher.smaller_is_better ? metric : -metric,
                          report["batches"].get<int64_t>());
    }
    std::sort(scores.begin(), scores.end());
    std::set<int64_t> kept;
    const KeptCheckpoints& rules = experiment_.kept_checkpoints;
    for (const auto& [score, batches] : scores)
      if (static_cast<int64_t>(kept.size()) < std::max<int64_t>(rules.trial_best, 0) &&
          present.contains(batches))
        kept.insert(batches);
    int64_t latest = std::max<int64_t>(rules.trial_latest, 1);  // a trial goes on from it
    for (auto entry = present.rbegin(); entry != present.rend() && latest > 0; ++entry, --latest)
      kept.insert(entry->first);
    for (const auto& [batches, path] : present)
      if (!kept.contains(batches)) fs::remove_all(path, error);
  }

  void stop_all() {
    std::vector<pid_t> children;
    for (const auto& [number, pid] : running_) {
      ::kill(-pid, SIGTERM);
      children.push_back(pid);
    }
    if (!children.empty()) launcher::end_children(children, std::chrono::seconds(5));
  }

  void write_result() const {
    Json trials = Json::array();
    for (const Trial& trial : searcher_.trials()) {
      Json one = {{"trial", trial.number},
                  {"status", name_of(trial.status)},
                  {"hyperparameters", trial.hyperparameters},
                  {"target", trial.target}};
      if (trial.best) one["best"] = {{"length", trial.best->length}, {"metric", trial.best->metric}};
      trials.push_back(one);
    }
    Json result = {{"name", experiment_.name}, {"metric", experiment_.searcher.metric}, {"trials", trials}};
    if (const auto best = searcher_.best())
      result["best"] = {
          {"trial", best->trial}, {"length", best->report.length}, {"metric", best->report.metric}};
    std::ofstream file(options_.folder / "result.json");
    file << result.dump(2) << "\n";
  }

  const Experiment& experiment_;
  RunOptions options_;
  std::ostream& out_;
  Searcher searcher_;
  Journal journal_;
  std::map<int64_t, pid_t> running_;
  std::map<int64_t, std::set<int64_t>> taken_;  // lengths of the reports that the searcher has
  std::map<int64_t, int64_t> restarts_;
  std::map<int64_t, int64_t> started_target_;
};

}  // namespace

Searcher run_experiment(const Experiment& experiment, const RunOptions& options, std::ostream& out) {
  if (experiment.entrypoint.empty())
    raise<UsageError>(
        "the experiment has no entrypoint, expected the program that trains a trial, with its arguments");
  if (experiment.slots_per_trial > options.slots) {
    raise<UsageError>("resources.slots_per_trial is ", experiment.slots_per_trial, ", and there are ",
                      options.slots, " slots: give more by --slots, or lower it");
  }
  fs::create_directories(options.folder);
  return Runner(experiment, options, out).run();
}

void print_trials(const Searcher& searcher, const SearcherConfig& config, std::ostream& out) {
  std::vector<const Trial*> order;
  for (const Trial& trial : searcher.trials()) order.push_back(&trial);
  const auto score = [&](const Trial* trial) {
    if (!trial->best) return INFINITY;
    return static_cast<float>(config.smaller_is_better ? trial->best->metric : -trial->best->metric);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const Trial* a, const Trial* b) { return score(a) < score(b); });
  for (const Trial* trial : order) {
    out << "trial " << trial->number << ": " << name_of(trial->status) << ", ";
    if (trial->best)
      out << config.metric << " " << trial->best->metric << " at " << trial->best->length;
    else
      out << "no " << config.metric;
    out << ", " << trial->hyperparameters << "\n";
  }
}

}  // namespace deepspeed::trial
