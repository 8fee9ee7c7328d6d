// Searches that are restored from a journal that was cut at any byte, against the undisturbed ones.
#include <fstream>
#include <functional>
#include <sstream>

#include <gtest/gtest.h>

#include "deepspeed/trial/search/event.h"
#include "deepspeed/trial/search/journal.h"
#include "deepspeed/trial/search/searcher.h"

#include "tests/support/temporary_folder.h"
#include "tests/trial/experiments.h"

namespace deepspeed::trial {
namespace {

/// Expects that two searches know and will decide the same.
void expect_equal_states(const Searcher& a, const Searcher& b) {
  ASSERT_EQ(a.trials(), b.trials());
  ASSERT_EQ(a.is_done(), b.is_done());
  ASSERT_EQ(a.best(), b.best());
  for (size_t bracket = 0; bracket < a.brackets().size(); ++bracket)
    ASSERT_EQ(a.rungs(bracket), b.rungs(bracket));
}

/// Returns what the first trial in training reports: a half of the way, then at its target. One of nine
/// fails.
Event next_event(const Searcher& search, size_t number) {
  for (const Trial& trial : search.trials()) {
    if (trial.status != TrialStatus::kTraining) continue;
    if (trial.number % 9 == 5) return Event::failure(trial.number);
    const auto metric = double((trial.number * 37) % 11) + 1.0 / double(trial.target);
    const int64_t length = number % 3 == 0 ? trial.target / 2 : trial.target;
    return Event::report(trial.number, length, metric);
  }
  throw std::logic_error("nothing is in training");
}

void replay(Searcher& search, const Journal& journal) {
  for (const Json& entry : journal.entries()) search.take(event_of(entry).value());
}

/// Runs a search to its end from where it is. Returns how many events that took.
size_t finish(Searcher& search, size_t number, const std::function<void(const Event&)>& note) {
  for (; !search.is_done(); ++number) {
    const Event event = next_event(search, number);
    search.take(event);
    note(event);
  }
  return number;
}

void expect_replays(const std::string& searcher) {
  const testing::TemporaryFolder folder;
  const Experiment experiment = testing::search_of("name: adaptive_asha, divisor: 2, " + searcher);
  const std::string digest = digest_of(experiment);
  std::vector<Searcher> states = {Searcher(experiment, 3)};  // after each number of events
  std::vector<Event> events;
  std::vector<uintmax_t> sizes;
  {
    Journal journal(folder / "whole", digest, 3);
    Searcher search = states.front();
    sizes.push_back(std::filesystem::file_size(folder / "whole"));
    finish(search, 0, [&](const Event& event) {
      journal.append(json_of(event));
      states.push_back(search);
      events.push_back(event);
      sizes.push_back(std::filesystem::file_size(folder / "whole"));
    });
  }
  ASSERT_GT(events.size(), 12u);
  std::ostringstream bytes;
  bytes << std::ifstream(folder / "whole", std::ios::binary).rdbuf();
  const std::string whole = bytes.str();
  const auto file = folder / "cut";
  size_t num_events = 0;
  for (size_t size = 0; size <= whole.size(); ++size) {
    while (num_events < events.size() && sizes[num_events + 1] <= size) ++num_events;
    std::ofstream(file, std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    Searcher search(experiment, 3);
    const Journal journal(file, digest, 3);
    ASSERT_EQ(journal.entries().size(), num_events) << size;
    replay(search, journal);
    ASSERT_NO_FATAL_FAILURE(expect_equal_states(search, states[num_events])) << size;
    ASSERT_EQ(finish(search, num_events, [](const Event&) {}), events.size()) << size;
    ASSERT_NO_FATAL_FAILURE(expect_equal_states(search, states.back())) << size;
  }
}

TEST(Replay, RestoresASyncSearchCutAtAnyByte) {
  expect_replays("mode: sync, max_length: 8, max_trials: 12, max_concurrent_trials: 3");
}

TEST(Replay, RestoresASearchByPromotionCutAtAnyByte) {
  expect_replays("mode: standard, max_length: 4, max_rungs: 3, max_trials: 9, max_concurrent_trials: 3");
}

TEST(Replay, RestoresASearchByStoppingCutAtAnyByte) {
  expect_replays(
      "mode: conservative, stop_once: true, max_length: 4, max_rungs: 3, max_trials: 10, "
      "max_concurrent_trials: 3");
}

TEST(Replay, ContinuesTheJournal) {
  const testing::TemporaryFolder folder;
  const Experiment experiment = testing::search_of("name: random, max_length: 4, max_trials: 9");
  Searcher undisturbed(experiment, 3);
  finish(undisturbed, 0, [](const Event&) {});
  for (bool is_done = false; !is_done;) {  // each process takes two events
    Journal journal(folder / "j", digest_of(experiment), 3);
    Searcher search(experiment, 3);
    replay(search, journal);
    for (size_t event = 0; event < 2 && !search.is_done(); ++event) {
      const Event next = next_event(search, journal.entries().size() + event);
      search.take(next);
      journal.append(json_of(next));
    }
    is_done = search.is_done();
    if (is_done) expect_equal_states(search, undisturbed);
  }
}

}  // namespace
}  // namespace deepspeed::trial
