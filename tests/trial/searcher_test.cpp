// Searches of a few trials, event by event.
#include "deepspeed/trial/search/searcher.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/trial/experiment/grid.h"
#include "deepspeed/trial/search/sample.h"

#include "tests/support/error_of.h"
#include "tests/trial/experiments.h"

namespace deepspeed::trial {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::search_of;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<int64_t> report(Searcher& search, int64_t trial, double metric) {
  return search.take(Event::report(trial, search.trials().at(size_t(trial)).target, metric));
}

/// Lists the statuses of all trials: "training 4, waiting 1".
std::string statuses(const Searcher& search) {
  std::string text;
  for (const Trial& trial : search.trials())
    text +=
        (text.empty() ? "" : ", ") + std::string(name_of(trial.status)) + " " + std::to_string(trial.target);
  return text;
}

std::vector<int64_t> order_of(const Rung& rung) {
  std::vector<int64_t> trials;
  for (const RungEntry& entry : rung.entries()) trials.push_back(entry.score.trial);
  return trials;
}

TEST(Searcher, TrainsASingleTrialToTheEnd) {
  Searcher search(search_of("name: single, max_length: 100"), 3);
  EXPECT_EQ(statuses(search), "training 100");
  EXPECT_FALSE(search.is_done());
  EXPECT_THAT(search.take(Event::report(0, 40, 2.0)), IsEmpty());
  EXPECT_FALSE(search.is_done());
  EXPECT_THAT(search.take(Event::report(0, 100, 3.0)), ElementsAre(0));
  EXPECT_EQ(statuses(search), "completed 100");
  EXPECT_TRUE(search.is_done());
  EXPECT_EQ(search.best(), (BestTrial{0, {40, 2.0}}));
}

TEST(Searcher, KeepsPlacesFilledInARandomSearch) {
  const Experiment experiment =
      search_of("name: random, max_length: 5, max_trials: 4, max_concurrent_trials: 2");
  Searcher search(experiment, 9);
  EXPECT_EQ(statuses(search), "training 5, training 5");
  EXPECT_THAT(report(search, 1, 0.5), ElementsAre(1, 2));
  EXPECT_THAT(search.take(Event::failure(0)), ElementsAre(0, 3));
  EXPECT_EQ(statuses(search), "failed 5, completed 5, training 5, training 5");
  report(search, 3, 0.25);
  report(search, 2, 0.75);
  EXPECT_TRUE(search.is_done());
  EXPECT_EQ(search.best(), (BestTrial{3, {5, 0.25}}));
  for (const Trial& trial : search.trials())
    EXPECT_EQ(trial.hyperparameters, sample_hyperparameters(experiment.hyperparameters, 9, trial.number));
}

TEST(Searcher, TrainsEachPointOfAGrid) {
  const Experiment experiment = search_of("name: grid, max_length: 5, max_concurrent_trials: 0");
  Searcher search(experiment, 1);
  ASSERT_EQ(search.trials().size(), 7u);
  for (int64_t trial = 0; trial < 7; ++trial) {
    EXPECT_EQ(search.trials()[size_t(trial)].hyperparameters, grid_point(experiment.hyperparameters, trial));
    report(search, trial, double(-trial));
  }
  EXPECT_TRUE(search.is_done());
  EXPECT_EQ(search.best()->trial, 6);
}

TEST(Searcher, PromotesAsReportsComeInTheModeAggressive) {
  Searcher search(
      search_of("name: adaptive_asha, mode: aggressive, divisor: 2, max_length: 4, max_trials: 4, "
                "max_concurrent_trials: 2"),
      1);
  EXPECT_EQ(statuses(search), "training 1, training 1");
  EXPECT_THAT(report(search, 0, 0.4), ElementsAre(0, 2));  // one of one waits
  EXPECT_EQ(statuses(search), "waiting 1, training 1, training 1");
  EXPECT_THAT(report(search, 1, 0.9), ElementsAre(0, 1));  // 0 is the better half
  EXPECT_EQ(statuses(search), "training 2, waiting 1, training 1");
  EXPECT_THAT(report(search, 2, 0.1), ElementsAre(2));  // the first one of three, floor(3 / 2)
  EXPECT_EQ(statuses(search), "training 2, waiting 1, training 2");
  EXPECT_THAT(report(search, 0, 0.3), ElementsAre(0, 3));
  EXPECT_THAT(report(search, 3, 0.8), ElementsAre(1, 3));  // rung 0 is closed
  EXPECT_EQ(statuses(search), "waiting 2, stopped 1, training 2, stopped 1");
  EXPECT_THAT(report(search, 2, 0.2), ElementsAre(0, 2));
  EXPECT_EQ(statuses(search), "stopped 2, stopped 1, training 4, stopped 1");
  EXPECT_THAT(report(search, 2, 0.25), ElementsAre(2));
  EXPECT_TRUE(search.is_done());
  EXPECT_EQ(search.best(), (BestTrial{2, {1, 0.1}}));
}

TEST(Searcher, WaitsForWholeRungsInTheModeSync) {
  Searcher search(search_of("name: adaptive_asha, mode: sync, divisor: 2, max_length: 4, max_trials: 5, "
                            "max_concurrent_trials: 2"),
                  1);
  report(search, 1, 0.5);
  report(search, 0, 0.4);
  report(search, 3, 0.3);
  report(search, 2, 0.2);
  EXPECT_EQ(statuses(search), "waiting 1, waiting 1, waiting 1, waiting 1, training 1");
  EXPECT_THAT(report(search, 4, 0.1), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(statuses(search), "stopped 1, stopped 1, training 2, stopped 1, training 2");
  report(search, 4, 0.7);
  EXPECT_THAT(report(search, 2, 0.7), ElementsAre(2, 4));  // equal: the lower number goes on
  EXPECT_EQ(statuses(search), "stopped 1, stopped 1, training 4, stopped 1, stopped 2");
  report(search, 2, 0.7);
  EXPECT_TRUE(search.is_done());
  EXPECT_EQ(search.best(), (BestTrial{4, {1, 0.1}}));
}

TEST(Searcher, QueuesMorePromotedTrialsThanMayTrain) {
  Searcher search(search_of("name: adaptive_asha, mode: sync, divisor: 2, max_length: 2, max_rungs: 2, "
                            "max_trials: 6, max_concurrent_trials: 1"),
                  1);
  for (int64_t trial = 0; trial < 6; ++trial) report(search, trial, double(6 - trial));
  EXPECT_EQ(statuses(search), "stopped 1, stopped 1, stopped 1, queued 2, queued 2, training 2");
  EXPECT_THAT(search.take(Event::failure(4)), ElementsAre(4));  // its checkpoint is lost
  EXPECT_THAT(report(search, 5, 1), ElementsAre(3, 5));
  report(search, 3, 1);
  EXPECT_EQ(statuses(search), "stopped 1, stopped 1, stopped 1, completed 2, failed 2, completed 2");
  EXPECT_TRUE(search.is_done());
  EXPECT_EQ(search.best(), (BestTrial{3, {2, 1.0}}));
}

TEST(Searcher, StopsTrialsThatFallOutWithStopOnce) {
  Searcher search(
      search_of("name: adaptive_asha, mode: aggressive, stop_once: true, divisor: 2, max_length: 4, "
                "max_trials: 5, max_concurrent_trials: 2"),
      1);
  EXPECT_THAT(report(search, 0, 0.5), ElementsAre(0));  // the first one goes on by default
  EXPECT_EQ(statuses(search), "training 2, training 1");
  EXPECT_THAT(report(search, 1, 0.6), ElementsAre(1, 2));
  EXPECT_EQ(statuses(search), "training 2, stopped 1, training 1");
  EXPECT_THAT(report(search, 2, 0.4), ElementsAre(2));
  EXPECT_THAT(report(search, 0, 0.5), ElementsAre(0));
  EXPECT_THAT(report(search, 2, 0.6), ElementsAre(2, 3));  // the second one of two in the second rung
  EXPECT_EQ(statuses(search), "training 4, stopped 1, stopped 2, training 1");
  EXPECT_THAT(search.take(Event::failure(3)), ElementsAre(3, 4));
  EXPECT_THAT(report(search, 4, 0.45), ElementsAre(4));  // the second one of five goes on
  EXPECT_EQ(statuses(search), "training 4, stopped 1, stopped 2, failed 1, training 2");
  report(search, 0, 0.1);
  report(search, 4, 0.9);
  EXPECT_EQ(statuses(search), "completed 4, stopped 1, stopped 2, failed 1, stopped 2");
  EXPECT_TRUE(search.is_done());
}

TEST(Searcher, SharesTrialsAmongTheBracketsOfTheModeStandard) {
  Searcher search(search_of("name: adaptive_asha, divisor: 2, max_length: 4, max_rungs: 3, max_trials: 8, "
                            "max_concurrent_trials: 3"),
                  1);
  ASSERT_EQ(search.brackets().size(), 2u);
  EXPECT_EQ(search.brackets()[0], (Bracket{{1, 2, 4}, 5, 2}));
  EXPECT_EQ(search.brackets()[1], (Bracket{{2, 4}, 3, 1}));
  EXPECT_EQ(statuses(search), "training 1, training 1, training 2");
  EXPECT_THAT(report(search, 2, 0.5), ElementsAre(2, 3));
  EXPECT_EQ(search.trials()[3].bracket, 1u);
  EXPECT_THAT(report(search, 0, 0.5), ElementsAre(0, 4));
  EXPECT_EQ(search.trials()[4].bracket, 0u);
  EXPECT_THAT(order_of(search.rungs(0)[0]), ElementsAre(0));
  EXPECT_THAT(order_of(search.rungs(1)[0]), ElementsAre(2));
}

TEST(Searcher, RanksNanLastAndFailuresBehindIt) {
  Searcher search(search_of("name: adaptive_asha, mode: sync, divisor: 2, max_length: 2, max_trials: 6, "
                            "max_rungs: 2"),
                  1);
  report(search, 0, kNan);
  search.take(Event::failure(1));
  report(search, 2, std::numeric_limits<double>::infinity());
  report(search, 3, kNan);
  search.take(Event::failure(4));
  report(search, 5, 1e300);
  EXPECT_THAT(order_of(search.rungs(0)[0]), ElementsAre(5, 2, 0, 3, 1, 4));
  EXPECT_EQ(statuses(search), "training 2, failed 1, training 2, stopped 1, failed 1, training 2");
  EXPECT_EQ(search.best(), (BestTrial{5, {1, 1e300}}));
}

TEST(Searcher, TakesLargerMetricsForBetterOnes) {
  Searcher search(search_of("name: adaptive_asha, smaller_is_better: false, mode: sync, divisor: 2, "
                            "max_length: 2, max_trials: 4, max_rungs: 2"),
                  1);
  report(search, 0, 1);
  report(search, 1, -std::numeric_limits<double>::infinity());
  report(search, 2, kNan);
  report(search, 3, 2);
  EXPECT_THAT(order_of(search.rungs(0)[0]), ElementsAre(3, 0, 1, 2));
  EXPECT_EQ(statuses(search), "training 2, stopped 1, stopped 1, training 2");
  EXPECT_EQ(search.best(), (BestTrial{3, {1, 2.0}}));
  report(search, 0, 5);
  search.take(Event::failure(3));
  EXPECT_EQ(search.best(), (BestTrial{0, {2, 5.0}}));
}

TEST(Searcher, LetsAGoodTrialPassManyFailedOnes) {
  Searcher search(search_of("name: adaptive_asha, mode: sync, divisor: 2, max_length: 4, max_trials: 4"), 1);
  for (const int64_t trial : {0, 1, 3}) search.take(Event::failure(trial));
  report(search, 2, 0.5);
  report(search, 2, 0.5);
  report(search, 2, 0.5);
  EXPECT_EQ(statuses(search), "failed 1, failed 1, completed 4, failed 1");
  EXPECT_THAT(order_of(search.rungs(0)[1]), ElementsAre(2, 0));
  EXPECT_TRUE(search.is_done());
}

TEST(Searcher, EndsWithoutABestTrialIfAllFail) {
  for (const char* mode : {"sync", "aggressive", "standard", "conservative, stop_once: true"}) {
    Searcher search(search_of("name: adaptive_asha, divisor: 2, max_length: 8, max_trials: 8, mode: " +
                              std::string(mode)),
                    1);
    while (!search.is_done()) {
      for (const Trial& trial : search.trials()) {
        if (trial.status != TrialStatus::kTraining) continue;
        search.take(Event::failure(trial.number));
        break;
      }
    }
    EXPECT_EQ(search.trials().size(), 8u) << mode;
    EXPECT_EQ(search.best(), std::nullopt);
  }
}

TEST(Searcher, RefusesEventsThatCannotBe) {
  Searcher search(search_of("name: random, max_length: 5, max_trials: 4, max_concurrent_trials: 2"), 1);
  EXPECT_ERROR(UsageError, search.take(Event::report(2, 1, 0)), "trial 2", "one of 2 trials");
  EXPECT_ERROR(UsageError, search.take(Event::failure(-1)), "trial -1");
  EXPECT_ERROR(UsageError, search.take(Event::report(1, 6, 0)), "trial 1 at the length 6, expected 0 to 5");
  EXPECT_ERROR(UsageError, search.take(Event::report(1, -1, 0)), "at the length -1");
  report(search, 1, 0);
  EXPECT_ERROR(UsageError, search.take(Event::failure(1)), "trial 1, which is completed");
  EXPECT_ERROR(UsageError, search.take(Event::report(1, 5, 0)), "trial 1, which is completed");
}

TEST(Event, IsReadAsItWasWritten) {
  for (const double metric : {0.1, -1e-300, 1e308, 5.0, std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity()}) {
    const auto read = event_of(Json::parse(json_of(Event::report(3, 16, metric)).dump()));
    ASSERT_TRUE(read);
    EXPECT_EQ(read->kind, Event::Kind::kReport);
    EXPECT_EQ(read->trial, 3);
    EXPECT_EQ(read->length, 16);
    EXPECT_EQ(read->metric, metric);
  }
  EXPECT_TRUE(std::isnan(event_of(json_of(Event::report(3, 16, kNan)))->metric));
  EXPECT_EQ(event_of(json_of(Event::failure(7)))->kind, Event::Kind::kFailure);
  EXPECT_EQ(event_of(json_of(Event::failure(7)))->trial, 7);
}

TEST(Event, IsNoEntryOfAnotherKind) {
  EXPECT_EQ(event_of({{"event", "restart"}, {"trial", 3}}), std::nullopt);
  EXPECT_EQ(event_of({{"trial", 3}}), std::nullopt);
  EXPECT_EQ(event_of(Json::array()), std::nullopt);
  EXPECT_ERROR(UsageError, event_of({{"event", "report"}, {"trial", 3}, {"length", 1}}), "\"trial\":3",
               "a metric");
  EXPECT_ERROR(UsageError, event_of({{"event", "failure"}, {"trial", "x"}}), "\"trial\":\"x\"");
}

}  // namespace
}  // namespace deepspeed::trial
