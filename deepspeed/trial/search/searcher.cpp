// What happens with an event.
//
// A report at the target, or a failure, puts a score into the trial's rung and frees its place. Then the
// bracket decides which trials go on, by one of two rules. Free places are filled with promoted trials first,
// then with new ones.
// - Promotion, the rule of ASHA (Li and others 2018, https://arxiv.org/abs/1810.05934, algorithm 2): a trial
//   goes to the next rung once it is among the first floor(n / divisor) of the n that have reported in its
//   rung. Others wait, since later reports can bring them in. In the mode sync the rule is applied only when
//   the rung is closed, so the result does not depend on the order of reports. A failed trial can be among
//   the first if many have failed. It is not trained, but counts as a failure in the next rung too: otherwise
//   the few good trials would be too few to be promoted there. Determined had this rule up to 0.37, without
//   sync.
// - Stopping, with stop_once (Determined's asha_stopping.go, its only rule from 0.38 on): a trial goes on at
//   once if it is among the first max(floor(n / divisor), 1) of the n when it reports, and stops for good
//   otherwise.
// A rung is closed when all trials that will ever reach it have reported. Those that still wait there stop.
#include "deepspeed/trial/search/searcher.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/trial/experiment/grid.h"
#include "deepspeed/trial/search/sample.h"

namespace deepspeed::trial {

const char* name_of(TrialStatus status) {
  switch (status) {
    case TrialStatus::kTraining:
      return "training";
    case TrialStatus::kQueued:
      return "queued";
    case TrialStatus::kWaiting:
      return "waiting";
    case TrialStatus::kStopped:
      return "stopped";
    case TrialStatus::kCompleted:
      return "completed";
    default:
      return "failed";
  }
}

Searcher::Searcher(const Experiment& experiment, uint64_t seed)
    : space_(experiment.hyperparameters),
      config_(experiment.searcher),
      seed_(seed),
      brackets_(brackets_of(config_)) {
  for (const Bracket& bracket : brackets_) {
    BracketRun& run = runs_.emplace_back();
    for (const int64_t length : bracket.lengths) run.rungs.emplace_back(length);
  }
  for (size_t bracket = 0; bracket < brackets_.size(); ++bracket) fill_places(bracket);
  changed_.clear();
}

Trial& Searcher::trial_in_training(const Event& event) {
  if (event.trial < 0 || event.trial >= static_cast<int64_t>(trials_.size()))
    raise<UsageError>("got an event of trial ", event.trial, ", expected one of ", trials_.size(), " trials");
  Trial& trial = trials_[static_cast<size_t>(event.trial)];
  // A promoted trial can fail before it trains, for example if its checkpoint is lost.
  const bool may_fail = trial.status == TrialStatus::kQueued && event.kind == Event::Kind::kFailure;
  if (trial.status != TrialStatus::kTraining && !may_fail)
    raise<UsageError>("got an event of trial ", event.trial, ", which is ", name_of(trial.status),
                      ", expected a trial in training");
  if (event.kind == Event::Kind::kReport && (event.length < 0 || event.length > trial.target)) {
    raise<UsageError>("got a report of trial ", event.trial, " at the length ", event.length,
                      ", expected 0 to ", trial.target, ", to which it trains");
  }
  return trial;
}

std::vector<int64_t> Searcher::take(const Event& event) {
  Trial& trial = trial_in_training(event);
  const size_t bracket = trial.bracket;
  changed_.clear();
  if (event.kind == Event::Kind::kFailure) {
    if (trial.status == TrialStatus::kQueued) std::erase(runs_[bracket].queue, trial.number);
    set_status(trial, TrialStatus::kFailed);
    settle(trial, Score::failure(trial.number));
  } else {
    const Score score = Score::of(trial.number, event.metric, config_.smaller_is_better);
    const auto value_of = [&](double metric) { return config_.smaller_is_better ? metric : -metric; };
    if (score.kind == Score::Kind::kNumber && (!trial.best || score.value < value_of(trial.best->metric)))
      trial.best = Report{event.length, event.metric};
    if (event.length < trial.target) return {};
    settle(trial, score);
  }
  fill_places(bracket);
  std::ranges::sort(changed_);
  changed_.erase(std::ranges::unique(changed_).begin(), changed_.end());
  return changed_;
}

void Searcher::set_status(Trial& trial, TrialStatus status) {
  int64_t& num_running = runs_[trial.bracket].num_running;
  if (trial.status == TrialStatus::kTraining) --num_running;
  if (status == TrialStatus::kTraining) ++num_running;
  trial.status = status;
  changed_.push_back(trial.number);
}

void Searcher::settle(Trial& trial, const Score& score) {
  std::vector<Rung>& rungs = runs_[trial.bracket].rungs;
  const bool is_at_top = trial.rung + 1 == rungs.size();
  const bool has_failed = trial.status == TrialStatus::kFailed;
  const size_t place = rungs[trial.rung].add(score);
  if (!has_failed) set_status(trial, is_at_top ? TrialStatus::kCompleted : TrialStatus::kWaiting);
  if (config_.stop_once && !is_at_top && !has_failed) continue_or_stop(trial, place);
  promote_trials(trial.bracket);
}

void Searcher::continue_or_stop(Trial& trial, size_t place) {
  Rung& rung = runs_[trial.bracket].rungs[trial.rung];
  const auto continuing = std::max<size_t>(rung.entries().size() / static_cast<size_t>(config_.divisor), 1);
  if (place >= continuing) return set_status(trial, TrialStatus::kStopped);
  rung.promote_at(place);
  trial.target = runs_[trial.bracket].rungs[++trial.rung].length();
  set_status(trial, TrialStatus::kTraining);
}

void Searcher::promote_trials(size_t bracket) {
  BracketRun& run = runs_[bracket];
  int64_t expected = brackets_[bracket].max_trials;  // to report in the rung, if the one below is closed
  bool is_below_closed = true;
  for (size_t rung = 0; rung < run.rungs.size(); ++rung) {
    Rung& own = run.rungs[rung];
    const bool is_complete = is_below_closed && static_cast<int64_t>(own.entries().size()) == expected;
    const bool promotes = !config_.stop_once && (config_.mode != AshaMode::kSync || is_complete);
    if (promotes && rung + 1 < run.rungs.size()) {
      for (const Score& score : own.promote(config_.divisor)) move_up(score.trial, bracket, rung + 1);
    }
    if (is_complete && !own.is_closed()) stop_the_rest(own);
    is_below_closed = is_complete;
    expected = own.num_promoted();
  }
}

void Searcher::move_up(int64_t number, size_t bracket, size_t rung) {
  Trial& trial = trials_[static_cast<size_t>(number)];
  Rung& next = runs_[bracket].rungs[rung];
  if (trial.status == TrialStatus::kFailed) {
    next.add(Score::failure(number));
    return;
  }
  trial.rung = rung;
  trial.target = next.length();
  set_status(trial, TrialStatus::kQueued);
  runs_[bracket].queue.push_back(number);
}

void Searcher::stop_the_rest(Rung& rung) {
  rung.close();
  for (const RungEntry& entry : rung.entries()) {
    Trial& trial = trials_[static_cast<size_t>(entry.score.trial)];
    if (!entry.promoted && trial.status == TrialStatus::kWaiting) set_status(trial, TrialStatus::kStopped);
  }
}

void Searcher::fill_places(size_t bracket) {
  BracketRun& run = runs_[bracket];
  while (run.num_running < brackets_[bracket].max_running) {
    if (!run.queue.empty()) {
      const int64_t number = run.queue.front();
      run.queue.pop_front();
      set_status(trials_[static_cast<size_t>(number)], TrialStatus::kTraining);
    } else if (run.num_created < brackets_[bracket].max_trials) {
      create_trial(bracket);
    } else {
      return;
    }
  }
}

void Searcher::create_trial(size_t bracket) {
  Trial& trial = trials_.emplace_back();
  trial.number = static_cast<int64_t>(trials_.size()) - 1;
  trial.hyperparameters = config_.method == SearchMethod::kGrid
                              ? grid_point(space_, trial.number)
                              : sample_hyperparameters(space_, seed_, trial.number);
  trial.bracket = bracket;
  trial.target = brackets_[bracket].lengths.front();
  ++runs_[bracket].num_created;
  ++runs_[bracket].num_running;
  changed_.push_back(trial.number);
}

bool Searcher::is_done() const {
  for (size_t bracket = 0; bracket < brackets_.size(); ++bracket) {
    const BracketRun& run = runs_[bracket];
    if (run.num_running > 0 || !run.queue.empty() || run.num_created < brackets_[bracket].max_trials)
      return false;
  }
  return true;
}

std::optional<BestTrial> Searcher::best() const {
  std::optional<BestTrial> best;
  for (const Trial& trial : trials_) {
    if (!trial.best || trial.status == TrialStatus::kFailed) continue;
    const bool is_better = !best || (config_.smaller_is_better ? trial.best->metric < best->report.metric
                                                               : trial.best->metric > best->report.metric);
    if (is_better) best = BestTrial{trial.number, *trial.best};
  }
  return best;
}

}  // namespace deepspeed::trial
