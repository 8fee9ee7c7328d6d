// Compares two ranks' reports about their calls.
//
// find_divergences() compares the calls of common groups by number. Calls may differ, their callers may hold
// different values, or a rank may have left without making a call. find_deadlocks() pairs groups in which the
// ranks' threads wait for each other. find_given_up() finds own groups that the other rank has failed. It
// also finds those that wait for a thread which has failed another group. Texts name the lower rank first, so
// that both ranks give the same text.
#include "deepspeed/comm/watch/rank_report.h"

#include <algorithm>
#include <set>
#include <utility>

#include "deepspeed/base/message.h"

namespace deepspeed::comm {
namespace {

bool has_member(const GroupReport& group, int rank) {
  return std::find(group.global_ranks.begin(), group.global_ranks.end(), rank) != group.global_ranks.end();
}

// Names the lower rank first, so that both ranks print the same text.
std::string both(int rank, const std::string& does, int other_rank, const std::string& other_does) {
  if (rank > other_rank) return both(other_rank, other_does, rank, does);
  return message("rank ", rank, " ", does, ", rank ", other_rank, " ", other_does);
}

// Returns "lr is 0.1 on rank 0 and 0.9 on rank 1" for the values of the callers of call `number`; nothing if
// they are equal.
std::optional<std::string> differing_values(const GroupReport& own, int own_rank, const GroupReport& other,
                                            int other_rank, uint64_t number) {
  if (own_rank > other_rank) return differing_values(other, other_rank, own, own_rank, number);
  const auto hash_in = [&](const GroupReport& group) {
    const auto found = group.held.find(number);
    return found == group.held.end() ? 0 : found->second;
  };
  if (hash_in(own) == hash_in(other) || hash_in(own) == 0 || hash_in(other) == 0) return std::nullopt;
  const auto values = own.values.find(hash_in(own));
  const auto others = other.values.find(hash_in(other));
  if (values == own.values.end() || others == other.values.end()) return "what they hold is not the same";
  return describe_differences(own_rank, values->second, other_rank, others->second);
}

std::optional<std::string> differing_call(const GroupReport& own, int own_rank, const GroupReport& other,
                                          int other_rank) {
  for (const auto& [number, call] : own.calls) {
    const auto found = other.calls.find(number);
    if (found == other.calls.end()) continue;
    const auto values = differing_values(own, own_rank, other, other_rank, number);
    if (found->second == call && values) {
      return message("the ranks diverged in group '", own.name, "': in ", call, " ", *values,
                     "; all ranks must be given the same");
    }
    if (found->second == call) continue;
    return message("the ranks diverged in group '", own.name,
                   "': ", both(own_rank, "called " + call, other_rank, "called " + found->second),
                   values ? "; " + *values : "",
                   "; all ranks of a group must call the same collectives in the same order");
  }
  return std::nullopt;
}

std::optional<std::string> missing_call(const GroupReport& own, int own_rank, const GroupReport& other,
                                        int other_rank) {
  if (!other.left || other.last_call() >= own.last_call()) return std::nullopt;
  const auto last = other.calls.empty() ? "before any collective" : "after " + other.calls.rbegin()->second;
  const auto& missed = own.calls.upper_bound(other.last_call())->second;
  return message("the ranks diverged in group '", own.name,
                 "': ", both(own_rank, "called " + missed, other_rank, "left " + last));
}

// Returns whether one thread makes the calls of both groups.
bool is_one_thread(const RankReport& report, const std::string& awaited, const std::string& blocked) {
  const int64_t thread = thread_of(report, awaited);
  return thread > 0 && thread == thread_of(report, blocked);
}

// Returns the calls, by group, in which the rank is blocked and that `peer` has not made. `peer` is in these
// groups. If `peer` left, that is a divergence instead.
std::map<std::string, std::string> blocked_calls(const RankReport& report, const RankReport& peer) {
  std::map<std::string, std::string> found;
  for (const auto& [key, group] : report.groups) {
    if (!group.waits_in || !group.is_blocked || !has_member(group, peer.rank)) continue;
    const auto same = peer.groups.find(key);
    const bool is_there = same != peer.groups.end();
    if (is_there && (same->second.left || same->second.last_call() >= *group.waits_in)) continue;
    const auto call = group.calls.find(*group.waits_in);
    if (call != group.calls.end()) found[key] = message(call->second, " of group '", group.name, "'");
  }
  return found;
}

// Returns whether the thread that calls in the group `awaited` still holds the group `failed`, which the rank
// gave up.
bool is_held_up(const RankReport& report, const std::string& awaited, const std::string& failed) {
  const auto found = report.groups.find(failed);
  return found != report.groups.end() && !found->second.left && is_one_thread(report, awaited, failed);
}

}  // namespace

Json to_json(const RankReport& report) {
  Json groups = Json::object();
  for (const auto& [key, group] : report.groups) {
    Json calls = Json::array();
    for (const auto& [number, call] : group.calls) calls.push_back({number, call});
    groups[key] = {{"name", group.name},
                   {"global_ranks", group.global_ranks},
                   {"calls", std::move(calls)},
                   {"held", group.held},
                   {"values", group.values},
                   {"waits_in", group.waits_in.value_or(0)},
                   {"is_blocked", group.is_blocked},
                   {"thread", group.thread},
                   {"left", group.left}};
  }
  return {{"rank", report.rank},
          {"serial", report.serial},
          {"gave_up", report.gave_up},
          {"groups", std::move(groups)}};
}

RankReport report_from_json(const Json& json) {
  RankReport report;
  report.rank = json.at("rank").get<int>();
  report.serial = json.at("serial").get<int64_t>();
  report.gave_up = json.at("gave_up").get<std::map<std::string, std::string>>();
  for (const auto& [key, value] : json.at("groups").items()) {
    GroupReport& group = report.groups[key];
    group.name = value.at("name").get<std::string>();
    group.global_ranks = value.at("global_ranks").get<std::vector<int>>();
    for (const auto& call : value.at("calls")) {
      group.calls[call.at(0).get<uint64_t>()] = call.at(1).get<std::string>();
    }
    group.held = value.at("held").get<std::map<uint64_t, uint64_t>>();
    group.values = value.at("values").get<std::map<uint64_t, NamedTexts>>();
    const auto waits_in = value.at("waits_in").get<uint64_t>();
    if (waits_in != 0) group.waits_in = waits_in;
    group.is_blocked = value.at("is_blocked").get<bool>();
    group.thread = value.at("thread").get<int64_t>();
    group.left = value.at("left").get<bool>();
  }
  return report;
}

int64_t thread_of(const RankReport& report, const std::string& group) {
  const auto found = report.groups.find(group);
  if (found != report.groups.end() && found->second.thread != 0) return found->second.thread;
  std::set<int64_t> threads;
  for (const auto& [key, other] : report.groups) {
    if (other.thread != 0) threads.insert(other.thread);
  }
  return threads.size() == 1 ? *threads.begin() : kSeveralThreads;
}

std::vector<Verdict> find_divergences(const RankReport& own, const RankReport& other) {
  std::vector<Verdict> found;
  for (const auto& [key, group] : own.groups) {
    const auto same = other.groups.find(key);
    if (same == other.groups.end()) continue;
    auto text = differing_call(group, own.rank, same->second, other.rank);
    if (!text) text = missing_call(group, own.rank, same->second, other.rank);
    if (text) found.push_back({key, std::move(*text)});
  }
  return found;
}

std::vector<Verdict> find_deadlocks(const RankReport& own, const RankReport& other) {
  std::vector<Verdict> found;
  const auto others = blocked_calls(other, own);
  for (const auto& [own_key, own_call] : blocked_calls(own, other)) {
    for (const auto& [other_key, other_call] : others) {
      if (!is_one_thread(other, own_key, other_key) || !is_one_thread(own, other_key, own_key)) continue;
      found.push_back(
          {own_key, message("the ranks wait for each other in different groups: ",
                            both(own.rank, "waits in " + own_call, other.rank, "waits in " + other_call),
                            "; all ranks must call the collectives of their common groups in "
                            "the same order")});
      break;
    }
  }
  return found;
}

std::vector<Verdict> find_given_up(const RankReport& own, const RankReport& other, bool with_idle) {
  std::vector<Verdict> found;
  for (const auto& [key, group] : own.groups) {
    if (!has_member(group, other.rank)) continue;
    for (const auto& [failed, reason] : other.gave_up) {
      if (failed != key && !((with_idle || group.waits_in) && is_held_up(other, key, failed))) continue;
      found.push_back({key, reason});
      break;
    }
  }
  return found;
}

}  // namespace deepspeed::comm
