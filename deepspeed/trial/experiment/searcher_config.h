// The section searcher of an experiment.
#pragma once

#include <cstdint>
#include <string>

#include "deepspeed/base/json.h"
#include "deepspeed/trial/experiment/length.h"

namespace deepspeed::trial {

/// Limits the trials of one search.
inline constexpr int64_t kMaxTrials = 100'000;

/// Names how trials are chosen.
enum class SearchMethod { kSingle, kRandom, kGrid, kAdaptiveAsha };

/// Says into which brackets adaptive_asha divides its trials (search/bracket.h). Determined has all but
/// `kSync`, which has one bracket, as kAggressive, but decides a rung only when all its trials have reported.
enum class AshaMode { kAggressive, kStandard, kConservative, kSync };

/// Holds how hyperparameters are searched, with Determined's defaults.
struct SearcherConfig {
  SearchMethod method = SearchMethod::kSingle;
  std::string metric;
  bool smaller_is_better = true;
  Length max_length;                   ///< of a trial that is trained to the end
  int64_t max_trials = 1;              ///< of a grid: its size
  int64_t max_concurrent_trials = 16;  ///< 0: as many as the method can use

  // The members below are for adaptive_asha alone.
  AshaMode mode = AshaMode::kStandard;
  int64_t divisor = 4;     ///< one trial of this many reaches the next rung
  int64_t rungs = 1;       ///< of the highest bracket: max_rungs, or fewer if max_trials is small
  bool stop_once = false;  ///< trials go on until they are stopped for good
};

/// Returns the number of rungs with which at least one trial reaches the top, at most `max_rungs`. Each rung
/// takes one of `divisor` trials of the rung below. The rule is Determined's.
int64_t usable_rungs(int64_t max_rungs, int64_t divisor, int64_t max_trials);

/// Returns `divisor` to the power of `exponent`, which fits if usable_rungs() is above `exponent`.
int64_t whole_power(int64_t divisor, int64_t exponent);

/// Describes the section in one way, whatever the YAML's spelling, for digests.
Json json_of(const SearcherConfig& searcher);

}  // namespace deepspeed::trial
