#include "deepspeed/comm/call_history.h"

#include <algorithm>
#include <utility>

namespace deepspeed::comm {
namespace {

constexpr size_t kKept = 64;

bool is_done(const c10::weak_intrusive_ptr<c10d::Work>& weak) {
  const auto work = weak.lock();
  return !work || work->isCompleted();
}

}  // namespace

CallHistory::CallHistory(std::string group_name, std::vector<int> global_ranks)
    : group_name_(std::move(group_name)), global_ranks_(std::move(global_ranks)) {}

uint64_t CallHistory::begin(const CollectiveCall& call) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({.call = call, .number = ++num_calls_, .begin = Clock::now()});
  return num_calls_;
}

bool CallHistory::Entry::has_ended() {
  if (!is_open) return true;
  if (!is_started || !std::all_of(works.begin(), works.end(), is_done)) return false;
  is_open = false;
  works.clear();
  return true;
}

CallHistory::Entry* CallHistory::find(uint64_t number) {
  const auto found = std::find_if(entries_.rbegin(), entries_.rend(),
                                  [&](const Entry& entry) { return entry.number == number; });
  return found == entries_.rend() ? nullptr : &*found;
}

void CallHistory::started(uint64_t number, const Works& works) {
  const std::lock_guard lock(mutex_);
  Entry* entry = find(number);
  if (entry == nullptr) return;
  for (const auto& work : works) entry->works.emplace_back(work);
  entry->is_started = true;
  while (entries_.size() > kKept && entries_.front().has_ended()) entries_.pop_front();
}

void CallHistory::set_blocked(uint64_t number, bool is_blocked) {
  const std::lock_guard lock(mutex_);
  if (Entry* entry = find(number)) entry->is_blocked = is_blocked;
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

GroupReport CallHistory::report(std::chrono::milliseconds patience) {
  const std::lock_guard lock(mutex_);
  GroupReport report;
  report.name = group_name_;
  report.global_ranks = global_ranks_;
  if (const Entry* entry = oldest_open(Clock::now() - patience)) {
    report.waits_in = entry->number;
    report.is_blocked = entry->is_blocked;
  }
  for (const Entry& entry : entries_) report.calls[entry.number] = describe(entry.call, entry.number);
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
