// A call gets its number when it begins, and its works are held weakly until they end. Reports contain the
// oldest unfinished call; hashes cover all calls that have begun.
#include "deepspeed/comm/watch/call_history.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "deepspeed/base/message.h"
#include "deepspeed/comm/watch/own_thread.h"

namespace deepspeed::comm {
namespace {

// Number of latest calls from one thread after which a group counts as belonging to that thread.
constexpr size_t kCallsOfOneThread = 16;
// Number of latest calls that are reported with their values. A differing call is among the last that a rank
// begins, and earlier values may be numerous.
constexpr size_t kCallsWithValues = 16;

bool is_done(const c10::weak_intrusive_ptr<c10d::Work>& weak) {
  const auto work = weak.lock();
  return !work || work->isCompleted();
}

}  // namespace

CallHistory::CallHistory(std::string group_name, std::vector<int> global_ranks, size_t kept)
    : group_name_(std::move(group_name)), global_ranks_(std::move(global_ranks)), kept_(kept) {}

CallHistory::Progress CallHistory::begin(const CollectiveCall& call) {
  const std::lock_guard lock(mutex_);
  ++progress_.number;
  progress_.chain = extend_chain(progress_.chain, call, progress_.number);
  entries_.push_back({.call = call,
                      .number = progress_.number,
                      .chain = progress_.chain,
                      .caller = caller_thread(),
                      .begin = Clock::now()});
  return progress_;
}

CallHistory::Progress CallHistory::progress() {
  const std::lock_guard lock(mutex_);
  return progress_;
}

int64_t CallHistory::last_caller() {
  const std::lock_guard lock(mutex_);
  return entries_.empty() ? 0 : entries_.back().caller;
}

int64_t CallHistory::recent_caller() const {
  if (entries_.empty()) return 0;
  const int64_t latest = entries_.back().caller;
  const size_t first = entries_.size() - std::min(kCallsOfOneThread, entries_.size());
  const bool is_one = std::all_of(entries_.begin() + static_cast<std::ptrdiff_t>(first), entries_.end(),
                                  [&](const Entry& entry) { return entry.caller == latest; });
  return is_one ? latest : kSeveralThreads;
}

std::optional<uint64_t> CallHistory::chain_at(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const Entry* entry = find(number);
  return entry == nullptr ? std::nullopt : std::optional(entry->chain);
}

bool CallHistory::Entry::has_ended() {
  if (!is_open) return true;
  if (!is_started || !std::all_of(works.begin(), works.end(), is_done)) return false;
  is_open = false;
  works.clear();
  return true;
}

CallHistory::Entry* CallHistory::find(uint64_t number) {
  if (entries_.empty() || number < entries_.front().number || number > progress_.number) return nullptr;
  return &entries_[number - entries_.front().number];  // numbers are consecutive
}

void CallHistory::started(uint64_t number, const Works& works) {
  const std::lock_guard lock(mutex_);
  Entry* entry = find(number);
  if (entry == nullptr) return;
  for (const auto& work : works) entry->works.emplace_back(work);
  entry->is_started = true;
  while (entries_.size() > kept_ && entries_.front().has_ended()) entries_.pop_front();
}

void CallHistory::set_blocked(uint64_t number, bool is_blocked) {
  const std::lock_guard lock(mutex_);
  if (Entry* entry = find(number)) entry->is_blocked = is_blocked;
}

CallHistory::MessageWait::MessageWait(CallHistory& history, const char* name, int peer) : history_(history) {
  const std::lock_guard lock(history.mutex_);
  number_ = ++history.num_messages_;
  history.messages_[number_] = {name, peer, Clock::now()};
}

CallHistory::MessageWait::~MessageWait() {
  const std::lock_guard lock(history_.mutex_);
  history_.messages_.erase(number_);
}

std::vector<AwaitedCall> CallHistory::awaited(std::chrono::milliseconds patience) {
  std::vector<AwaitedCall> found;
  const auto begun_before = Clock::now() - patience;
  const std::string of_group = message(" of group '", group_name_, "'");
  const std::lock_guard lock(mutex_);
  if (const Entry* entry = oldest_open(begun_before))
    found.push_back({describe(entry->call, entry->number) + of_group, global_ranks_});
  if (messages_.empty()) return found;
  const OpenMessage& oldest = messages_.begin()->second;
  if (oldest.begin > begun_before) return found;
  const bool is_send = std::string_view(oldest.name) == "send";
  const int peer = global_ranks_.at(static_cast<size_t>(oldest.peer));
  found.push_back({message(oldest.name, is_send ? " to rank " : " from rank ", peer, of_group), {peer}});
  return found;
}

const CallHistory::Entry* CallHistory::oldest_open(Clock::time_point begun_before) {
  for (Entry& entry : entries_) {
    if (entry.has_ended()) continue;
    return entry.begin <= begun_before ? &entry : nullptr;
  }
  return nullptr;
}

bool CallHistory::has_waited(std::chrono::milliseconds patience) {
  const std::lock_guard lock(mutex_);
  return oldest_open(Clock::now() - patience) != nullptr;
}

void CallHistory::tell(Entry& entry, bool with_values, GroupReport& report) {
  report.calls[entry.number] = describe(entry.call, entry.number);
  if (!entry.call.held) return;
  const uint64_t hash = entry.call.held_hash();
  report.held[entry.number] = hash;
  if (with_values && !report.values.contains(hash)) report.values[hash] = entry.call.held->describe();
}

GroupReport CallHistory::report(std::chrono::milliseconds patience, size_t most, bool all_values) {
  const std::lock_guard lock(mutex_);
  GroupReport report;
  report.name = group_name_;
  report.global_ranks = global_ranks_;
  report.thread = recent_caller();
  if (const Entry* entry = oldest_open(Clock::now() - patience)) {
    report.waits_in = entry->number;
    report.is_blocked = entry->is_blocked;
  }
  size_t first = entries_.size() - std::min(most, entries_.size());
  if (report.waits_in) first = std::min<size_t>(first, *report.waits_in - entries_.front().number);
  for (size_t i = first; i < entries_.size(); ++i) {
    tell(entries_[i], all_values || i + kCallsWithValues >= entries_.size(), report);
  }
  return report;
}

GroupReport CallHistory::leaving_report() {
  const std::lock_guard lock(mutex_);
  GroupReport report;
  report.name = group_name_;
  report.left = true;
  if (!entries_.empty()) {
    const Entry& last = entries_.back();
    report.calls[last.number] = describe(last.call, last.number);
  }
  return report;
}

}  // namespace deepspeed::comm
