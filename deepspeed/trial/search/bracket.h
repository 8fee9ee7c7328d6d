// How a search divides its trials: brackets with rungs.
//
// A bracket is one successive halving (Jamieson, Talwalkar 2016, https://arxiv.org/abs/1502.07943). Its
// trials begin in the lowest rung, and the better ones are trained further, to the next rung. Methods without
// halving have one bracket with one rung. The modes of adaptive_asha are those of Determined
// (master/pkg/searcher/adaptive_asha.go):
// - aggressive: one bracket with all rungs;
// - standard: brackets of half of the rungs, rounded up, to all rungs;
// - conservative: brackets of one rung to all rungs.
// A bracket with fewer rungs starts with a longer training, so it misjudges fewer trials, but tries fewer.
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/trial/experiment/searcher_config.h"

namespace deepspeed::trial {

/// Describes a bracket: the lengths of its rungs, and its share of the trials.
struct Bracket {
  std::vector<int64_t> lengths;  ///< to which each rung trains, ascending, in units of max_length
  int64_t max_trials = 0;
  int64_t max_running = 0;  ///< trials that are trained at a time

  friend bool operator==(const Bracket&, const Bracket&) = default;
};

/// Returns the brackets; the one with most rungs is first. Rung i of n trains to max_length / divisor^(n - 1
/// - i). A bracket's number of trials is in proportion to divisor^(n - 1) / n, so that brackets train about
/// equally much. It is rounded down, but at least 1, and the first bracket gets the remainder.
/// max_concurrent_trials is shared evenly, and each bracket gets at least 1. If it is 0, each bracket trains
/// as many trials at a time as the last bracket has, but at least `divisor`. These rules are Determined's.
std::vector<Bracket> brackets_of(const SearcherConfig& config);

}  // namespace deepspeed::trial
