#include "deepspeed/trial/search/bracket.h"

#include <algorithm>

namespace deepspeed::trial {
namespace {

/// Returns the number of rungs of each bracket, descending.
std::vector<int64_t> rungs_of_brackets(const SearcherConfig& config) {
  int64_t fewest = config.rungs;
  if (config.mode == AshaMode::kStandard) fewest = (config.rungs - 1) / 2 + 1;
  if (config.mode == AshaMode::kConservative) fewest = 1;
  std::vector<int64_t> rungs;
  for (int64_t count = config.rungs; count >= fewest; --count) rungs.push_back(count);
  return rungs;
}

std::vector<int64_t> lengths_of(const SearcherConfig& config, int64_t rungs) {
  std::vector<int64_t> lengths;
  for (int64_t rung = 0; rung < rungs; ++rung)
    lengths.push_back(config.max_length.amount / whole_power(config.divisor, rungs - 1 - rung));
  return lengths;
}

void share_trials(const SearcherConfig& config, std::vector<Bracket>& brackets) {
  const auto weight = [&](const Bracket& bracket) {
    const auto rungs = static_cast<int64_t>(bracket.lengths.size());
    return static_cast<double>(whole_power(config.divisor, rungs - 1)) / static_cast<double>(rungs);
  };
  double sum = 0;
  for (const Bracket& bracket : brackets) sum += weight(bracket);
  int64_t shared = 0;
  for (Bracket& bracket : brackets) {
    const double share = weight(bracket) / sum * static_cast<double>(config.max_trials);
    bracket.max_trials = std::max<int64_t>(static_cast<int64_t>(share), 1);
    shared += bracket.max_trials;
  }
  brackets.front().max_trials += std::max<int64_t>(config.max_trials - shared, 0);
}

void share_places(const SearcherConfig& config, std::vector<Bracket>& brackets) {
  const auto count = static_cast<int64_t>(brackets.size());
  if (config.max_concurrent_trials == 0) {
    for (Bracket& bracket : brackets)
      bracket.max_running = std::max(brackets.back().max_trials, config.divisor);
    return;
  }
  const int64_t places = std::max(config.max_concurrent_trials, count);
  for (int64_t i = 0; i < count; ++i)
    brackets[static_cast<size_t>(i)].max_running = places / count + (i < places % count ? 1 : 0);
}

}  // namespace

std::vector<Bracket> brackets_of(const SearcherConfig& config) {
  std::vector<Bracket> brackets;
  if (config.method == SearchMethod::kAdaptiveAsha) {
    for (const int64_t rungs : rungs_of_brackets(config))
      brackets.push_back({lengths_of(config, rungs), 0, 0});
  } else {
    brackets.push_back({{config.max_length.amount}, 0, 0});
  }
  share_trials(config, brackets);
  share_places(config, brackets);
  return brackets;
}

}  // namespace deepspeed::trial
