// Whole searches against oracles that follow the rules as they are stated, with whole lists sorted anew at
// each question. Trials end in random orders. Metrics have ties, NaNs and failures.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/trial/search/searcher.h"

#include "tests/trial/experiments.h"

namespace deepspeed::trial {
namespace {

using testing::search_of;

/// Says what a trial would report at a length; nothing if it fails there.
using Outcome = std::function<std::optional<double>(int64_t trial, int64_t length)>;

/// Returns outcomes that depend on a seed, the trial and the length. One of twelve is a failure, one a NaN.
Outcome random_outcome(unsigned seed) {
  return [seed](int64_t trial, int64_t length) -> std::optional<double> {
    std::mt19937 draw(seed * 7919 + unsigned(trial) * 104729 + unsigned(length));
    const unsigned kind = draw() % 12;
    if (kind == 0) return {};
    if (kind == 1) return std::numeric_limits<double>::quiet_NaN();
    return double(draw() % 20);
  };
}

/// Is a rank that sorts like the rule: numbers, NaN, failures; then the trial's number.
using Rank = std::tuple<int, double, int64_t>;

Rank rank_of(int64_t trial, const std::optional<double>& metric, bool smaller_is_better) {
  if (!metric) return {2, 0, trial};
  if (std::isnan(*metric)) return {1, 0, trial};
  return {0, smaller_is_better ? *metric : -*metric, trial};
}

/// Ends a random trial in training, at the end of its rung. Returns its event.
Event end_one(Searcher& search, const Outcome& outcome, std::mt19937& draw) {
  std::vector<int64_t> running;
  for (const Trial& trial : search.trials()) {
    if (trial.status == TrialStatus::kTraining) running.push_back(trial.number);
  }
  const int64_t number = running.at(draw() % running.size());
  const int64_t target = search.trials()[size_t(number)].target;
  const auto metric = outcome(number, target);
  const Event event = metric ? Event::report(number, target, *metric) : Event::failure(number);
  search.take(event);
  return event;
}

std::vector<std::vector<int64_t>> orders_of(const Searcher& search, size_t bracket) {
  std::vector<std::vector<int64_t>> orders;
  for (const Rung& rung : search.rungs(bracket)) {
    orders.emplace_back();
    for (const RungEntry& entry : rung.entries()) orders.back().push_back(entry.score.trial);
  }
  return orders;
}

/// Returns the trials of each rung of a synchronous search, the best one first.
std::vector<std::vector<int64_t>> sync_rungs(const Experiment& experiment, const Outcome& outcome) {
  const SearcherConfig& config = experiment.searcher;
  std::vector<std::vector<int64_t>> orders;
  std::set<int64_t> failed;
  std::vector<int64_t> alive;
  for (int64_t trial = 0; trial < config.max_trials; ++trial) alive.push_back(trial);
  for (int64_t rung = 0; rung < config.rungs; ++rung) {
    const auto parts = int64_t(std::llround(std::pow(config.divisor, config.rungs - 1 - rung)));
    std::vector<Rank> ranks;
    for (const int64_t trial : alive) {
      const auto metric =
          failed.contains(trial) ? std::nullopt : outcome(trial, config.max_length.amount / parts);
      if (!metric) failed.insert(trial);
      ranks.push_back(rank_of(trial, metric, config.smaller_is_better));
    }
    std::sort(ranks.begin(), ranks.end());
    alive.clear();
    for (const Rank& rank : ranks) alive.push_back(std::get<2>(rank));
    orders.push_back(alive);
    alive.resize(alive.size() / size_t(config.divisor));
  }
  return orders;
}

TEST(SyncSearch, HasOneResultForAllOrdersOfFinishing) {
  for (const bool smaller : {true, false}) {
    const Experiment experiment = search_of(
        "name: adaptive_asha, mode: sync, divisor: 3, max_length: 27, max_trials: 40, max_rungs: 4, "
        "max_concurrent_trials: 6, smaller_is_better: " +
        std::string(smaller ? "true" : "false"));
    const Outcome outcome = random_outcome(smaller ? 11 : 12);
    const auto expected = sync_rungs(experiment, outcome);
    ASSERT_EQ(expected.back().size(), 1u);
    std::optional<BestTrial> best;
    for (unsigned order = 0; order < 200; ++order) {
      Searcher search(experiment, 5);
      std::mt19937 draw(order);
      while (!search.is_done()) end_one(search, outcome, draw);
      ASSERT_EQ(orders_of(search, 0), expected) << order;
      ASSERT_TRUE(search.best());
      if (order == 0) best = search.best();
      ASSERT_EQ(search.best(), best);
    }
  }
}

TEST(SyncSearch, FollowsItsRuleForManySizes) {
  for (int trials = 1; trials < 60; ++trials) {
    for (const int divisor : {2, 3, 4}) {
      const Experiment experiment =
          search_of("name: adaptive_asha, mode: sync, max_length: 5184, max_rungs: 4, divisor: " +
                    std::to_string(divisor) + ", max_trials: " + std::to_string(trials));
      const Outcome outcome = random_outcome(unsigned(trials));
      Searcher search(experiment, 5);
      std::mt19937 draw(1);
      while (!search.is_done()) end_one(search, outcome, draw);
      ASSERT_EQ(orders_of(search, 0), sync_rungs(experiment, outcome)) << trials << " " << divisor;
    }
  }
}

/// Follows the promotion or the stopping of a bracket by the rule, from the reports alone.
class Oracle {
 public:
  Oracle(const SearcherConfig& config, const Bracket& bracket)
      : config_(config), reports_(bracket.lengths.size()) {}

  void take(int64_t trial, const std::optional<double>& metric) {
    const size_t rung = rungs_[trial];
    reports_[rung].push_back(rank_of(trial, metric, config_.smaller_is_better));
    if (!metric) failed_.insert(trial);
    if (config_.stop_once) {
      if (metric && rung + 1 < reports_.size() && is_among_first(rung, trial, 1)) rungs_[trial] = rung + 1;
      return;
    }
    for (bool changes = true; changes;) {
      changes = false;
      for (size_t below = 0; below + 1 < reports_.size(); ++below) {
        for (const Rank& rank : std::vector<Rank>(reports_[below])) {
          const int64_t candidate = std::get<2>(rank);
          if (!is_among_first(below, candidate, 0) || !promoted_.emplace(below, candidate).second) continue;
          changes = true;
          rungs_[candidate] = below + 1;
          if (failed_.contains(candidate)) reports_[below + 1].push_back(rank_of(candidate, {}, true));
        }
      }
    }
  }

  /// Returns at whose end a trial reports next, or has reported last.
  size_t rung_of(int64_t trial) { return rungs_[trial]; }
  bool has_failed(int64_t trial) const { return failed_.contains(trial); }

 private:
  bool is_among_first(size_t rung, int64_t trial, size_t at_least) const {
    std::vector<Rank> ranks = reports_[rung];
    std::sort(ranks.begin(), ranks.end());
    const size_t first = std::max(ranks.size() / size_t(config_.divisor), at_least);
    for (size_t place = 0; place < std::min(first, ranks.size()); ++place) {
      if (std::get<2>(ranks[place]) == trial) return true;
    }
    return false;
  }

  SearcherConfig config_;
  std::vector<std::vector<Rank>> reports_;
  std::map<int64_t, size_t> rungs_;
  std::set<int64_t> failed_;
  std::set<std::pair<size_t, int64_t>> promoted_;
};

void expect_oracle(const std::string& searcher, unsigned seed) {
  const Experiment experiment = search_of("name: adaptive_asha, " + searcher);
  Searcher search(experiment, 5);
  std::vector<Oracle> oracles;
  for (const Bracket& bracket : search.brackets()) oracles.emplace_back(experiment.searcher, bracket);
  const Outcome outcome = random_outcome(seed);
  std::mt19937 draw(seed);
  while (!search.is_done()) {
    const Event event = end_one(search, outcome, draw);
    Oracle& oracle = oracles[search.trials()[size_t(event.trial)].bracket];
    oracle.take(event.trial, event.kind == Event::Kind::kReport ? std::optional(event.metric) : std::nullopt);
    std::vector<int64_t> running(search.brackets().size());
    for (const Trial& trial : search.trials()) {
      running[trial.bracket] += trial.status == TrialStatus::kTraining ? 1 : 0;
      Oracle& own = oracles[trial.bracket];
      ASSERT_EQ(trial.status == TrialStatus::kFailed, own.has_failed(trial.number));
      if (!own.has_failed(trial.number)) {
        ASSERT_EQ(trial.rung, own.rung_of(trial.number)) << "trial " << trial.number << ", " << searcher;
      }
    }
    for (size_t bracket = 0; bracket < running.size(); ++bracket)
      ASSERT_LE(running[bracket], search.brackets()[bracket].max_running);
  }
  ASSERT_EQ(int64_t(search.trials().size()), experiment.searcher.max_trials);
  for (const Trial& trial : search.trials()) {
    const bool is_over = trial.status == TrialStatus::kStopped || trial.status == TrialStatus::kCompleted ||
                         trial.status == TrialStatus::kFailed;
    ASSERT_TRUE(is_over) << trial.number;
    ASSERT_EQ(trial.status == TrialStatus::kCompleted,
              trial.status != TrialStatus::kFailed && trial.target == experiment.searcher.max_length.amount &&
                  trial.status != TrialStatus::kStopped);
  }
}

TEST(AshaSearch, PromotesByItsRule) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    for (const char* mode : {"aggressive", "standard", "conservative"}) {
      const std::string rest =
          ", max_length: 1296, max_rungs: 4, max_trials: " + std::to_string(5 + 7 * seed);
      expect_oracle("divisor: 2, max_concurrent_trials: 5, mode: " + std::string(mode) + rest, seed);
      expect_oracle("divisor: 3, max_concurrent_trials: 0, mode: " + std::string(mode) + rest, seed);
    }
  }
}

TEST(AshaSearch, StopsByItsRule) {
  for (unsigned seed = 0; seed < 12; ++seed) {
    for (const char* mode : {"aggressive", "standard", "conservative"}) {
      expect_oracle(
          "stop_once: true, smaller_is_better: false, divisor: 2, max_concurrent_trials: 5, mode: " +
              std::string(mode) +
              ", max_length: 1296, max_rungs: 4, max_trials: " + std::to_string(5 + 7 * seed),
          seed);
    }
  }
}

// These are the numbers of trials of Determined's test of its search by promotion, with three rungs.
TEST(AshaSearch, TrainsAsManyTrialsAsDetermined) {
  Searcher search(
      search_of("name: adaptive_asha, mode: aggressive, divisor: 3, max_length: 9000, max_rungs: 3, "
                "max_trials: 12, max_concurrent_trials: 0"),
      0);
  std::mt19937 draw(3);
  const Outcome constant = [](int64_t trial, int64_t) { return double(trial + 1) / 100; };
  while (!search.is_done()) end_one(search, constant, draw);
  std::map<int64_t, int> trials;
  for (const Trial& trial : search.trials()) ++trials[trial.target];
  EXPECT_EQ(search.rungs(0)[0].length(), 1000);
  EXPECT_EQ(trials[1000] + trials[3000] + trials[9000], 12);
  EXPECT_GE(trials[3000] + trials[9000], 4);
  EXPECT_GE(trials[9000], 1);
  EXPECT_EQ(search.best()->trial, 0);
}

}  // namespace
}  // namespace deepspeed::trial
