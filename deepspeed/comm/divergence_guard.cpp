#include "deepspeed/comm/divergence_guard.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "deepspeed/comm/sequence_check.h"

namespace deepspeed::comm {
namespace {

using std::chrono::milliseconds;

// How long a call may be under way before the ranks compare, and how often that is looked at and told.
constexpr milliseconds kPatience(1000);
constexpr milliseconds kInterval(250);
// Calls that a group remembers where hashes are compared: more than ranks are apart when they do.
constexpr size_t kKept = 4096;

std::string report_key(int rank) { return "calls/" + std::to_string(rank); }

}  // namespace

struct DivergenceGuard::State {
  struct Watched {
    std::shared_ptr<CallHistory> history;
    std::function<void(const std::string&)> on_divergence;  // empty once it was called
    std::vector<int> global_ranks;
    Check check;
  };

  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;

  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, Watched> groups;
  bool has_thread = false;
  bool stopped = false;
  bool ended = false;  // no thread any more, and no store
  bool left = false;
  std::string gave_up;
  uint64_t num_asked = 0;     // exchanges that callers asked for
  uint64_t num_answered = 0;  // those that were done
  std::optional<std::string> answer;

  // Of the guard's thread alone.
  int64_t serial = 0;
  std::map<int, std::pair<int64_t, std::string>> suspected;  // by rank: the report that showed a deadlock
  std::optional<SequenceCheck> sequences;

  bool waits(milliseconds patience);
  std::set<int> peers();
  std::map<std::string, SequenceCheck::Group> compared_groups();
  RankReport own_report(milliseconds patience, size_t most = 64);
  std::optional<RankReport> report_of(int peer);
  bool is_deadlock_again(const RankReport& other, const std::string& text);
  std::optional<std::string> exchange(milliseconds patience);
  std::optional<std::string> compare(const RankReport& own);
  void tell(const RankReport& report) { store->set(report_key(rank), to_json(report).dump()); }
  std::optional<std::string> check_sequences();
  /// everywhere: also in groups where nothing is under way.
  void give_up(const std::string& reason, bool everywhere);
  uint64_t ask();
  void stop();
  bool wait_for_answer(uint64_t number, milliseconds limit);
  static void serve(const std::shared_ptr<State>& state);
};

// The next functions run without the lock while they touch the store, which may block.

bool DivergenceGuard::State::waits(milliseconds patience) {
  const std::lock_guard lock(mutex);
  return std::any_of(groups.begin(), groups.end(), [&](const auto& group) {
    return group.second.on_divergence && group.second.history->has_waited(patience);
  });
}

std::set<int> DivergenceGuard::State::peers() {
  const std::lock_guard lock(mutex);
  std::set<int> ranks;
  for (const auto& [key, group] : groups) ranks.insert(group.global_ranks.begin(), group.global_ranks.end());
  ranks.erase(rank);
  return ranks;
}

std::map<std::string, SequenceCheck::Group> DivergenceGuard::State::compared_groups() {
  const std::lock_guard lock(mutex);
  std::map<std::string, SequenceCheck::Group> compared;
  if (left || !gave_up.empty()) return compared;
  for (const auto& [key, group] : groups) {
    if (group.check == Check::kByTheGuard) compared[key] = {group.history, group.global_ranks};
  }
  return compared;
}

RankReport DivergenceGuard::State::own_report(milliseconds patience, size_t most) {
  const std::lock_guard lock(mutex);
  RankReport report;
  report.rank = rank;
  report.serial = ++serial;
  report.gave_up = gave_up;
  for (const auto& [key, group] : groups) {
    report.groups[key] = left ? group.history->leaving_report() : group.history->report(patience, most);
  }
  return report;
}

std::optional<RankReport> DivergenceGuard::State::report_of(int peer) {
  const auto text = read_if_set(*store, report_key(peer));
  return text ? std::optional(report_from_json(Json::parse(*text))) : std::nullopt;
}

bool DivergenceGuard::State::is_deadlock_again(const RankReport& other, const std::string& text) {
  auto& [seen_serial, seen_text] = suspected[other.rank];
  const bool again = seen_text == text && seen_serial < other.serial;
  if (seen_text != text) {
    seen_text = text;
    seen_serial = other.serial;
  }
  return again;
}

std::optional<std::string> DivergenceGuard::State::compare(const RankReport& own) {
  for (const int peer : peers()) {
    const auto other = report_of(peer);
    if (!other) continue;
    if (!other->gave_up.empty()) return other->gave_up;
    if (auto text = find_divergence(own, *other)) return text;
    const auto deadlock = find_deadlock(own, *other);
    if (deadlock && is_deadlock_again(*other, *deadlock)) return deadlock;
  }
  return std::nullopt;
}

std::optional<std::string> DivergenceGuard::State::exchange(milliseconds patience) {
  try {
    RankReport own = own_report(patience);
    tell(own);
    if (own.has_left()) return std::nullopt;  // reading could meet a store that is closed already
    auto text = compare(own);
    if (text) {
      own.gave_up = *text;
      tell(own);
    }
    return text;
  } catch (const std::exception&) {
    // The store is gone with rank 0: the collectives fail by themselves.
    return std::nullopt;
  }
}

std::optional<std::string> DivergenceGuard::State::check_sequences() {
  const auto compared = compared_groups();
  if (compared.empty()) return std::nullopt;
  try {
    if (!sequences) sequences.emplace(rank, [this] { return own_report(milliseconds(0), kKept); });
    auto text = sequences->check(*store, compared);
    if (text) {
      auto own = own_report(milliseconds(0));
      own.gave_up = *text;
      tell(own);
    }
    return text;
  } catch (const std::exception&) {
    return std::nullopt;  // as in exchange()
  }
}

void DivergenceGuard::State::give_up(const std::string& reason, bool everywhere) {
  std::vector<std::function<void(const std::string&)>> calls;
  {
    const std::lock_guard lock(mutex);
    gave_up = reason;
    for (auto& [key, group] : groups) {
      if (group.on_divergence && (everywhere || group.history->has_waited(milliseconds(0)))) {
        calls.push_back(std::exchange(group.on_divergence, nullptr));
      }
    }
  }
  for (const auto& call : calls) call(reason);
}

void DivergenceGuard::State::serve(const std::shared_ptr<State>& state) {
  while (true) {
    uint64_t asked = 0;
    {
      std::unique_lock lock(state->mutex);
      state->changed.wait_for(lock, kInterval,
                              [&] { return state->stopped || state->num_asked > state->num_answered; });
      if (state->num_asked == state->num_answered && state->stopped) {
        // With the store goes the job's file, if it has one; so here, where someone may wait for it.
        state->store.reset();
        state->ended = true;
        state->changed.notify_all();
        return;
      }
      asked = state->num_asked;
      if (asked == state->num_answered) asked = 0;
    }
    if (asked == 0) {
      if (const auto text = state->check_sequences()) {
        state->give_up(*text, /*everywhere=*/true);
      } else if (state->waits(kPatience)) {
        if (const auto reason = state->exchange(kPatience)) state->give_up(*reason, /*everywhere=*/false);
      }
      continue;
    }
    auto text = state->exchange(milliseconds(0));
    const std::lock_guard lock(state->mutex);
    state->num_answered = asked;
    state->answer = std::move(text);
    state->changed.notify_all();
  }
}

uint64_t DivergenceGuard::State::ask() {
  const std::lock_guard lock(mutex);
  changed.notify_all();
  return ++num_asked;
}

bool DivergenceGuard::State::wait_for_answer(uint64_t number, milliseconds limit) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, limit, [&] { return ended || num_answered >= number; });
  return num_answered >= number;
}

void DivergenceGuard::State::stop() {
  const std::lock_guard lock(mutex);
  stopped = true;
  changed.notify_all();
}

DivergenceGuard::DivergenceGuard(c10::intrusive_ptr<c10d::Store> store, int rank)
    : state_(std::make_shared<State>()) {
  state_->store = std::move(store);
  state_->rank = rank;
}

DivergenceGuard::~DivergenceGuard() { state_->stop(); }

std::shared_ptr<CallHistory> DivergenceGuard::watch(const std::string& key, const std::string& name,
                                                    const std::vector<int>& global_ranks, Check check,
                                                    std::function<void(const std::string&)> on_divergence) {
  auto history = check == Check::kByTheGuard ? std::make_shared<CallHistory>(name, global_ranks, kKept)
                                             : std::make_shared<CallHistory>(name, global_ranks);
  const std::lock_guard lock(state_->mutex);
  state_->groups[key] = {history, std::move(on_divergence), global_ranks, check};
  if (!std::exchange(state_->has_thread, true)) std::thread(&State::serve, state_).detach();
  return history;
}

std::optional<std::string> DivergenceGuard::explain(milliseconds limit) {
  if (!state_->wait_for_answer(state_->ask(), limit)) return std::nullopt;
  const std::lock_guard lock(state_->mutex);
  return state_->answer;
}

void DivergenceGuard::leave(milliseconds limit, bool is_known) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->left = true;
    if (state_->ended || !state_->has_thread) return;
  }
  if (!is_known) state_->wait_for_answer(state_->ask(), limit);
  state_->stop();
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, limit, [&] { return state_->ended; });
}

}  // namespace deepspeed::comm
