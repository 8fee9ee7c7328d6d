#include "deepspeed/comm/watch/sequence_check.h"

#include <algorithm>
#include <set>
#include <utility>

#include "deepspeed/base/json.h"
#include "deepspeed/base/message.h"

namespace deepspeed::comm {
namespace {

// How often ranks compare, and how long a differing rank may take to report its calls.
constexpr std::chrono::milliseconds kComparing(500);
constexpr std::chrono::milliseconds kNaming(3000);

std::string verdict_key(const std::string& group) { return "divergence/" + group; }
std::string sequence_key(int rank) { return "sequence/" + std::to_string(rank); }
std::string request_key(int rank) { return "all_calls_wanted/" + std::to_string(rank); }
std::string all_calls_key(int rank) { return "all_calls/" + std::to_string(rank); }

std::set<int> neighbours(const std::vector<int>& ranks, int rank) {
  const auto place = static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  std::set<int> found{ranks[(place + 1) % ranks.size()], ranks[(place + ranks.size() - 1) % ranks.size()]};
  found.erase(rank);
  return found;
}

std::string progress_of(const std::map<std::string, SequenceCheck::Group>& groups) {
  Json told = Json::object();
  for (const auto& [key, group] : groups) {
    const auto progress = group.history->progress();
    told[key] = {progress.number, progress.chain};
  }
  return told.dump();
}

}  // namespace

std::optional<Verdict> SequenceCheck::check(c10d::Store& store, const std::map<std::string, Group>& groups) {
  if (difference_) return name_difference(store);
  if (Clock::now() < next_) return std::nullopt;
  next_ = Clock::now() + kComparing;
  difference_ = compare(store, groups);
  if (difference_) {
    store.add(request_key(difference_->peer), 1);
    tell_calls(store);
    naming_ends_ = Clock::now() + kNaming;
    return std::nullopt;
  }
  answer_requests(store);
  for (const auto& [key, group] : groups) {
    if (auto text = read_if_set(store, verdict_key(key))) return Verdict{key, std::move(*text)};
  }
  return std::nullopt;
}

std::optional<SequenceCheck::Difference> SequenceCheck::compare(c10d::Store& store,
                                                                const std::map<std::string, Group>& groups) {
  const auto own = progress_of(groups);
  if (own != told_) store.set(sequence_key(rank_), own);
  told_ = own;
  std::map<int, std::optional<Json>> told_by;  // read once per peer, which may share several groups
  for (const auto& [key, group] : groups) {
    for (const int peer : neighbours(group.global_ranks, rank_)) {
      if (told_by.count(peer) == 0) {
        const auto text = read_if_set(store, sequence_key(peer));
        told_by[peer] = text ? std::optional(Json::parse(*text)) : std::nullopt;
      }
      const auto& told = told_by[peer];
      if (!told || !told->contains(key)) continue;
      const auto number = told->at(key).at(0).get<uint64_t>();
      const auto chain = group.history->chain_at(number);
      // If the peer is ahead, it compares instead.
      if (chain && *chain != told->at(key).at(1).get<uint64_t>()) return Difference{key, peer, number};
    }
  }
  return std::nullopt;
}

void SequenceCheck::tell_calls(c10d::Store& store) {
  store.set(all_calls_key(rank_), to_json(all_calls_()).dump());
}

void SequenceCheck::answer_requests(c10d::Store& store) {
  if (!store.check({request_key(rank_)})) return;
  const int64_t num_asked = store.add(request_key(rank_), 0);
  if (std::exchange(num_answered_, num_asked) != num_asked) tell_calls(store);
}

std::optional<Verdict> SequenceCheck::name_difference(c10d::Store& store) {
  const std::string group = difference_->group;
  auto text = read_if_set(store, verdict_key(group));
  if (!text) {
    const auto own = all_calls_();
    text = named_difference(store, own);
    if (!text && Clock::now() < naming_ends_) return std::nullopt;
    if (!text) text = unnamed_difference(own);
    store.set(verdict_key(group), *text);
  }
  difference_.reset();
  return Verdict{group, std::move(*text)};
}

std::optional<std::string> SequenceCheck::named_difference(c10d::Store& store, const RankReport& own) const {
  const auto other = read_if_set(store, all_calls_key(difference_->peer));
  if (!other) return std::nullopt;
  for (auto& verdict : find_divergences(own, report_from_json(Json::parse(*other)))) {
    if (verdict.group == difference_->group) return std::move(verdict.text);
  }
  return std::nullopt;
}

std::string SequenceCheck::unnamed_difference(const RankReport& own) const {
  const auto held = own.groups.find(difference_->group);
  return message("the ranks diverged in group '",
                 held == own.groups.end() ? difference_->group : held->second.name,
                 "' at or before collective #", difference_->number, ": rank ",
                 std::min(rank_, difference_->peer), " and rank ", std::max(rank_, difference_->peer),
                 " called other collectives; all ranks of a group must call the same collectives in the same "
                 "order");
}

}  // namespace deepspeed::comm
