#include "deepspeed/comm/rank_report.h"

#include <algorithm>

#include "deepspeed/base/message.h"

namespace deepspeed::comm {
namespace {

bool has_member(const GroupReport& group, int rank) {
  return std::find(group.global_ranks.begin(), group.global_ranks.end(), rank) != group.global_ranks.end();
}

// The text names the lower rank first, so that both ranks print the same.
std::string both(int rank, const std::string& does, int other_rank, const std::string& other_does) {
  if (rank > other_rank) return both(other_rank, other_does, rank, does);
  return message("rank ", rank, " ", does, ", rank ", other_rank, " ", other_does);
}

std::optional<std::string> differing_call(const GroupReport& own, int own_rank, const GroupReport& other,
                                          int other_rank) {
  for (const auto& [number, call] : own.calls) {
    const auto found = other.calls.find(number);
    if (found == other.calls.end() || found->second == call) continue;
    return message("the ranks diverged in group '", own.name,
                   "': ", both(own_rank, "called " + call, other_rank, "called " + found->second),
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

// The call in which the rank is blocked, of a group that `peer` is in too and where `peer` has not called it.
const std::string* blocked_call(const GroupReport& group, int peer, const RankReport& peer_report,
                                const std::string& key) {
  if (!group.waits_in || !group.is_blocked || !has_member(group, peer)) return nullptr;
  const auto same = peer_report.groups.find(key);
  if (same != peer_report.groups.end() && same->second.last_call() >= *group.waits_in) return nullptr;
  const auto call = group.calls.find(*group.waits_in);
  return call == group.calls.end() ? nullptr : &call->second;
}

std::optional<std::string> first_blocked_call(const RankReport& report, const RankReport& peer) {
  for (const auto& [key, group] : report.groups) {
    if (const auto* call = blocked_call(group, peer.rank, peer, key)) {
      return message("waits in ", *call, " of group '", group.name, "'");
    }
  }
  return std::nullopt;
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
                   {"waits_in", group.waits_in.value_or(0)},
                   {"is_blocked", group.is_blocked},
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
  report.gave_up = json.at("gave_up").get<std::string>();
  for (const auto& [key, value] : json.at("groups").items()) {
    GroupReport& group = report.groups[key];
    group.name = value.at("name").get<std::string>();
    group.global_ranks = value.at("global_ranks").get<std::vector<int>>();
    for (const auto& call : value.at("calls")) {
      group.calls[call.at(0).get<uint64_t>()] = call.at(1).get<std::string>();
    }
    const auto waits_in = value.at("waits_in").get<uint64_t>();
    if (waits_in != 0) group.waits_in = waits_in;
    group.is_blocked = value.at("is_blocked").get<bool>();
    group.left = value.at("left").get<bool>();
  }
  return report;
}

std::optional<std::string> find_divergence(const RankReport& own, const RankReport& other) {
  for (const auto& [key, group] : own.groups) {
    const auto same = other.groups.find(key);
    if (same == other.groups.end()) continue;
    if (auto text = differing_call(group, own.rank, same->second, other.rank)) return text;
    if (auto text = missing_call(group, own.rank, same->second, other.rank)) return text;
  }
  return std::nullopt;
}

std::optional<std::string> find_deadlock(const RankReport& own, const RankReport& other) {
  const auto own_call = first_blocked_call(own, other);
  const auto other_call = first_blocked_call(other, own);
  if (!own_call || !other_call) return std::nullopt;
  return message("the ranks wait for each other in different groups: ",
                 both(own.rank, *own_call, other.rank, *other_call),
                 "; all ranks must call the collectives of their common groups in the same order");
}

}  // namespace deepspeed::comm
