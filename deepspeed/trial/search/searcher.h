// The decisions of a hyperparameter search: which trials exist, how far each is trained, and which is best.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/trial/experiment/experiment.h"
#include "deepspeed/trial/search/bracket.h"
#include "deepspeed/trial/search/event.h"
#include "deepspeed/trial/search/rung.h"

namespace deepspeed::trial {

/// Says what a trial does, or why it does nothing.
enum class TrialStatus {
  kTraining,   ///< trains to its target
  kQueued,     ///< is promoted, and trains to its target when a running trial ends
  kWaiting,    ///< has reached its target, and may be promoted later
  kStopped,    ///< is never trained again: others were better
  kCompleted,  ///< has reached max_length
  kFailed,     ///< has failed for good
};

/// Returns the status as one word: "training".
DEEPSPEED_API const char* name_of(TrialStatus status);

/// Holds a metric that a trial has reported, and the length at which it did.
struct Report {
  int64_t length = 0;
  double metric = 0;

  friend bool operator==(const Report&, const Report&) = default;
};

/// Describes a trial as a search sees it. Lengths are in units of max_length.
struct Trial {
  int64_t number = 0;    ///< from 0, in the order of creation
  Json hyperparameters;  ///< values by name
  size_t bracket = 0;    ///< index in brackets()
  size_t rung = 0;       ///< at whose end it reports next, or has reported last
  int64_t target = 0;    ///< length of that rung
  TrialStatus status = TrialStatus::kTraining;
  std::optional<Report> best;  ///< the best of its reports that are no NaN

  friend bool operator==(const Trial&, const Trial&) = default;
};

/// Names the best trial, with its best report.
struct BestTrial {
  int64_t trial = 0;
  Report report;

  friend bool operator==(const BestTrial&, const BestTrial&) = default;
};

/// Decides a search. It has no clock, files or threads: its state is a function of the experiment, the seed
/// and the events, in their order. So replaying a journal restores it.
class DEEPSPEED_API Searcher {
 public:
  /// Begins a search: the first trials exist at once.
  Searcher(const Experiment& experiment, uint64_t seed);

  /// Takes an event. Returns the numbers of the trials that are new or have changed status or target,
  /// ascending. A report below the trial's target only counts for best(). It may come at any length, and
  /// again after a restart. Throws UsageError, with nothing changed, for a trial that does not exist or is
  /// not in training, and for a length beyond its target. A trial that is queued may fail.
  std::vector<int64_t> take(const Event& event);

  const std::vector<Trial>& trials() const { return trials_; }
  /// Returns whether the search has ended: nothing trains, and nothing will.
  bool is_done() const;
  /// Returns the trial with the best of all reports, at any length. Of equal ones the lower number wins.
  /// Failed trials and NaNs do not count. Returns nothing if there are no other reports.
  std::optional<BestTrial> best() const;

  const std::vector<Bracket>& brackets() const { return brackets_; }
  /// Returns the rungs of a bracket, the lowest one first.
  const std::vector<Rung>& rungs(size_t bracket) const { return runs_.at(bracket).rungs; }

 private:
  /// Holds how far a bracket has come.
  struct BracketRun {
    std::vector<Rung> rungs;
    std::deque<int64_t> queue;  // promoted trials that wait for a place
    int64_t num_created = 0;
    int64_t num_running = 0;
  };

  Trial& trial_in_training(const Event& event);
  void set_status(Trial& trial, TrialStatus status);
  void settle(Trial& trial, const Score& score);
  void continue_or_stop(Trial& trial, size_t place);
  void promote_trials(size_t bracket);
  void move_up(int64_t number, size_t bracket, size_t rung);
  void stop_the_rest(Rung& rung);
  void fill_places(size_t bracket);
  void create_trial(size_t bracket);

  Space space_;
  SearcherConfig config_;
  uint64_t seed_;
  std::vector<Bracket> brackets_;
  std::vector<BracketRun> runs_;
  std::vector<Trial> trials_;
  std::vector<int64_t> changed_;  // by the event that is being taken
};

}  // namespace deepspeed::trial
