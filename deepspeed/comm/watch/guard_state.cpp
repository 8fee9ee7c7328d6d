// Implements the guard's thread, which checks, exchanges and compares reports, and ends groups. The functions
// are in the order that the header describes.
#include "deepspeed/comm/watch/guard_state.h"

#include <algorithm>
#include <iterator>
#include <thread>

#include "deepspeed/comm/group/absent_ranks.h"
#include "deepspeed/comm/group/quiet_backend.h"
#include "deepspeed/comm/group/still_ranks.h"
#include "deepspeed/comm/group/store_polling.h"
#include "deepspeed/comm/watch/own_thread.h"

namespace deepspeed::comm {
namespace {

using std::chrono::milliseconds;

// How long a call may be unfinished before the ranks compare, and the interval between checks.
constexpr milliseconds kPatience(1000);
constexpr milliseconds kInterval(250);
// How long a call may be unfinished before other ranks' processes are inspected, and the interval.
constexpr milliseconds kStillPatience(2000);
constexpr milliseconds kStillInterval(1000);
// Longest time the store takes in a healthy job, even on a busy machine.
constexpr milliseconds kSilence(5000);
// How long ending groups wait until the others can read the reason.
constexpr milliseconds kTellingTheEnd(500);

std::string report_key(int rank) { return "calls/" + std::to_string(rank); }

}  // namespace

// The next functions release the lock while they use the store, which may block.

bool GuardState::waits(milliseconds patience) {
  const std::lock_guard lock(mutex);
  return std::any_of(groups.begin(), groups.end(),
                     [&](const auto& group) { return group.second.waits(patience); });
}

bool GuardState::has_left() {
  const std::lock_guard lock(mutex);
  return left;
}

bool GuardState::makes_no_group() {
  const std::lock_guard lock(mutex);
  return left || ending_thread != 0;
}

void GuardState::tell(const RankReport& report) {
  store->set(report_key(rank), to_json(report).dump());
  if (makes_no_group() && !std::exchange(is_absence_noted, true)) note_absence(*store, rank, "left the job");
}

std::set<int> GuardState::peers() {
  const std::lock_guard lock(mutex);
  std::set<int> ranks;
  for (const auto& [key, group] : groups) ranks.insert(group.global_ranks.begin(), group.global_ranks.end());
  ranks.erase(rank);
  return ranks;
}

std::map<std::string, SequenceCheck::Group> GuardState::compared_groups() {
  const std::lock_guard lock(mutex);
  std::map<std::string, SequenceCheck::Group> compared;
  if (left) return compared;
  for (const auto& [key, group] : groups) {
    if (!group.compares_hashes || group.is_let_go || gave_up.count(key) != 0) continue;
    compared[key] = {group.history, group.global_ranks};
  }
  return compared;
}

GroupReport GuardState::report_of_group(Watched& group, milliseconds patience, size_t most) const {
  CallHistory& history = *group.history;
  const bool has_ended =
      ending_thread != 0 && history.last_caller() == ending_thread && !history.has_unfinished_calls();
  if (left || group.is_let_go || has_ended) return history.leaving_report();
  return history.report(patience, most, /*all_values=*/most == kKept);
}

RankReport GuardState::own_report(milliseconds patience, size_t most) {
  const std::lock_guard lock(mutex);
  RankReport report;
  report.rank = rank;
  report.serial = ++serial;
  report.gave_up = gave_up;
  for (auto& [key, group] : groups) report.groups[key] = report_of_group(group, patience, most);
  return report;
}

std::optional<RankReport> GuardState::report_of(int peer) {
  const auto text = read_if_set(*store, report_key(peer));
  return text ? std::optional(report_from_json(Json::parse(*text))) : std::nullopt;
}

bool GuardState::is_deadlock_again(const RankReport& other, const std::string& text) {
  const auto [seen, is_new] = suspected.try_emplace({other.rank, text}, other.serial);
  return !is_new && seen->second < other.serial;
}

GuardState::Verdicts GuardState::compare(const RankReport& own, Verdicts* held_up) {
  Verdicts found;
  const auto add = [&](Verdicts verdicts) {
    std::move(verdicts.begin(), verdicts.end(), std::back_inserter(found));
  };
  for (const int peer : peers()) {
    const auto other = report_of(peer);
    if (!other) continue;
    add(find_divergences(own, *other));
    add(find_given_up(own, *other));
    auto deadlocks = find_deadlocks(own, *other);
    std::erase_if(deadlocks, [&](const Verdict& one) { return !is_deadlock_again(*other, one.text); });
    add(std::move(deadlocks));
    if (held_up == nullptr) continue;
    auto given_up = find_given_up(own, *other, /*with_idle=*/true);
    std::move(given_up.begin(), given_up.end(), std::back_inserter(*held_up));
  }
  return found;
}

/// Sets GuardState::exchange_begin during an exchange.
class GuardState::ExchangeTime {
 public:
  explicit ExchangeTime(GuardState& state) : state_(state) { set(std::chrono::steady_clock::now()); }
  ~ExchangeTime() { set(std::nullopt); }
  ExchangeTime(const ExchangeTime&) = delete;
  ExchangeTime& operator=(const ExchangeTime&) = delete;

 private:
  void set(std::optional<std::chrono::steady_clock::time_point> begin) {
    const std::lock_guard lock(state_.mutex);
    state_.exchange_begin = begin;
  }
  GuardState& state_;
};

GuardState::Verdicts GuardState::exchange(milliseconds patience, Verdicts* held_up) {
  const QuietBackend quiet;
  const ExchangeTime time(*this);
  try {
    RankReport own = own_report(patience);
    tell(own);
    if (has_left()) return {};  // the store may already be closed
    auto verdicts = compare(own, held_up);
    for (const Verdict& verdict : verdicts) own.gave_up.emplace(verdict.group, verdict.text);
    if (!verdicts.empty()) tell(own);
    return verdicts;
  } catch (const std::exception&) {
    // The store is gone with rank 0, so the collectives fail anyway.
    return {};
  }
}

GuardState::Verdicts GuardState::check_sequences() {
  const auto compared = compared_groups();
  if (compared.empty()) return {};
  const QuietBackend quiet;
  try {
    if (!sequences) sequences.emplace(rank, [this] { return own_report(milliseconds(0), kKept); });
    auto verdict = sequences->check(*store, compared);
    if (!verdict) return {};
    auto own = own_report(milliseconds(0));
    own.gave_up.emplace(verdict->group, verdict->text);
    tell(own);
    return {std::move(*verdict)};
  } catch (const std::exception&) {
    return {};  // as in exchange()
  }
}

void GuardState::give_up(const Verdicts& verdicts, bool everywhere) {
  Endings calls;
  {
    const std::lock_guard lock(mutex);
    for (const auto& [failed, reason] : verdicts) {
      const auto given_up = groups.find(failed);
      if (given_up == groups.end() || !gave_up.emplace(failed, reason).second) continue;
      const int64_t thread = given_up->second.history->last_caller();
      for (auto& [key, group] : groups) {
        const bool has_its_thread =
            group.history->last_caller() == thread && (everywhere || group.waits(milliseconds(0)));
        if (!group.on_divergence || (key != failed && !has_its_thread)) continue;
        gave_up.emplace(key, reason);
        calls.emplace_back(std::exchange(group.on_divergence, nullptr), reason);
      }
    }
  }
  tell_and_end(calls);
}

void GuardState::tell_and_end_here(const Endings& endings) {
  if (endings.empty()) return;
  wait_for_answer(ask(), kTellingTheEnd);  // the guard's thread tells the others
  for (const auto& [end, reason] : endings) end(reason);
}

void GuardState::tell_and_end(const Endings& endings) {
  if (endings.empty()) return;
  try {
    const QuietBackend quiet;
    tell(own_report(
        kPatience));  // told before connections close, because waiting ranks then look for the reason
  } catch (const std::exception&) {
    // The store is gone with rank 0, as in exchange().
  }
  for (const auto& [end, reason] : endings) end(reason);
}

GuardState::Endings GuardState::note_end(const std::string& reason, const std::string* only) {
  Endings endings;
  const std::lock_guard lock(mutex);
  for (auto& [key, group] : groups) {
    if (!group.on_divergence || (only != nullptr && key != *only)) continue;
    gave_up.emplace(key, reason);
    endings.emplace_back(std::exchange(group.on_divergence, nullptr), reason);
  }
  return endings;
}

void GuardState::complete_groups() {
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex);
    for (const auto& [key, group] : groups)
      if (group.complete && group.on_divergence) calls.push_back(group.complete);
  }
  for (const auto& complete : calls) complete();
}

void GuardState::end_groups_if_due() {
  if (!reason_to_end) return;
  const auto reason = reason_to_end();
  if (!reason) return;
  complete_groups();  // a finished script may release its group while the device still works
  tell_and_end(note_end(*reason));
}

bool GuardState::is_let_go_by_all(const std::string& key, bool is_counted, size_t num_ranks) {
  const int64_t count = store->add("let_go/" + key, is_counted ? 0 : 1);
  return count >= static_cast<int64_t>(num_ranks);
}

void GuardState::count_let_go() {
  std::map<std::string, Watched> kept;
  {
    const std::lock_guard lock(mutex);
    for (const auto& [key, group] : groups) {
      if (group.is_let_go) kept.emplace(key, group);
    }
  }
  if (kept.empty()) return;
  const QuietBackend quiet;  // the store's rank may have ended
  bool is_news = false;
  for (auto& [key, group] : kept) {
    const bool is_done = is_let_go_by_all(key, group.is_counted, group.global_ranks.size());
    is_news = is_news || !group.is_counted;
    const std::lock_guard lock(mutex);
    groups.at(key).is_counted = true;
    if (!is_done) continue;
    groups.erase(key);
    gave_up.erase(key);
  }
  if (is_news) tell(own_report(kPatience));
}  // The connections close here, without the lock.

void GuardState::read_processes() {
  if (unread.empty()) return;
  for (const int peer : peers()) {
    if (unread.erase(peer) == 0) continue;
    const QuietBackend quiet;
    try {
      // The ranks of a group recorded this before they made the group.
      auto process = read_process(*store, peer);
      const std::lock_guard lock(mutex);
      if (process) processes[peer] = std::move(*process);
    } catch (const std::exception&) {
      return;  // the store is gone with rank 0, as in exchange()
    }
  }
}

std::vector<AwaitedCall> GuardState::awaited_calls() {
  std::vector<AwaitedCall> awaited;
  for (const auto& [key, group] : groups) {
    if (!group.on_divergence || group.is_let_go) continue;
    for (auto& each : group.history->awaited(kStillPatience)) awaited.push_back(std::move(each));
  }
  return awaited;
}

void GuardState::exchange_beats() {
  if (!heartbeats.is_due()) return;
  std::set<int> unseen = peers();
  std::vector<AwaitedCall> awaited;
  {
    const std::lock_guard lock(mutex);
    if (left) return;
    for (const auto& [other, process] : processes) unseen.erase(other);
    if (!unseen.empty()) awaited = awaited_calls();
  }
  if (unseen.empty()) return;
  const QuietBackend quiet;
  const ExchangeTime time(*this);
  try {
    heartbeats.beat(*store, rank);
    heartbeats.look(*store, rank, awaited, unseen);
  } catch (const std::exception&) {
    // The store is gone with rank 0, as in exchange().
  }
}

void GuardState::look() {
  read_processes();
  exchange_beats();
  end_groups_if_due();
  if (const auto found = check_sequences(); !found.empty()) return give_up(found, /*everywhere=*/true);
  if (waits(kPatience)) {
    give_up(exchange(kPatience), /*everywhere=*/false);
  } else {
    suspected.clear();
  }
  try {
    count_let_go();
  } catch (const std::exception&) {
    // The store is gone with rank 0, as in exchange().
  }
}

void GuardState::serve(const std::shared_ptr<GuardState>& state) {
  while (true) {
    uint64_t asked = 0;
    {
      std::unique_lock lock(state->mutex);
      state->changed.wait_for(lock, kInterval,
                              [&] { return state->stopped || state->num_asked > state->num_answered; });
      if (state->num_asked == state->num_answered && state->stopped) {
        // Releasing the store removes the job's file, if any. It happens here because a caller may wait for
        // it.
        state->store.reset();
        state->ended = true;
        state->changed.notify_all();
        return;
      }
      asked = state->num_asked;
      if (asked == state->num_answered) asked = 0;
    }
    if (asked == 0) {
      state->look();
      continue;
    }
    Verdicts held_up;
    auto verdicts = state->exchange(milliseconds(0), &held_up);
    // A call that has already failed is not waiting, but its caller asks for the reason.
    std::move(held_up.begin(), held_up.end(), std::back_inserter(verdicts));
    const std::lock_guard lock(state->mutex);
    state->num_answered = asked;
    state->answer = std::move(verdicts);
    state->changed.notify_all();
  }
}

void GuardState::watch_processes(const std::shared_ptr<GuardState>& state) {
  StillRanks still(state->rank);
  std::unique_lock lock(state->mutex);
  while (!state->changed.wait_for(lock, kStillInterval, [&] { return state->stopped; })) {
    const auto awaited = state->awaited_calls();
    const bool is_store_silent =
        state->exchange_begin && std::chrono::steady_clock::now() - *state->exchange_begin > kSilence;
    const auto processes = awaited.empty() ? std::map<int, RankProcess>() : state->processes;
    lock.unlock();
    still.look(processes, awaited, is_store_silent);
    lock.lock();
  }
}

uint64_t GuardState::ask() {
  const std::lock_guard lock(mutex);
  changed.notify_all();
  return ++num_asked;
}

bool GuardState::wait_for_answer(uint64_t number, milliseconds limit) {
  std::unique_lock lock(mutex);
  changed.wait_for(lock, limit, [&] { return ended || num_answered >= number; });
  return num_answered >= number;
}

void GuardState::stop() {
  const std::lock_guard lock(mutex);
  stopped = true;
  changed.notify_all();
}

}  // namespace deepspeed::comm
