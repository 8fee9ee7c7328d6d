// Groups are made under keys that are the same on all their ranks. A world that leaves tells waiting ranks
// before its connections close.
#include "deepspeed/comm/world.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/making/given_group.h"

namespace deepspeed::comm {
namespace {

// How long a leaving rank may take to say so.
constexpr std::chrono::milliseconds kLeaving(500);

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void check_ranks(const std::vector<int>& ranks, const std::string& name, int world_size) {
  if (ranks.empty()) raise<UsageError>("the group '", name, "' has no ranks, expected one or more");
  auto sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) raise<UsageError>("the group '", name, "' names rank ", *twice, " twice");
  if (sorted.front() < 0 || sorted.back() >= world_size) {
    raise<UsageError>("the group '", name, "' names rank ",
                      sorted.front() < 0 ? sorted.front() : sorted.back(), ", expected 0 to ",
                      world_size - 1);
  }
}

}  // namespace

WorldImpl& checked_world(const std::shared_ptr<WorldImpl>& impl) {
  if (!impl) raise<UsageError>("the world is empty; call init_distributed() first");
  return *impl;
}

WorldImpl::WorldImpl(Job job, GroupFactory make_group, std::shared_ptr<DivergenceGuard> guard,
                     const c10::intrusive_ptr<c10d::ProcessGroup>& given)
    : job_(std::move(job)), make_group_(std::move(make_group)), guard_(std::move(guard)) {
  if (given) given_.emplace(given);
  group_ = this->make_group(all_ranks(job_.world_size), "world", given);
  // A program that ends without destroying its world, for example by an error in main(), still tells waiting
  // ranks. It does so before its exchanges end, because the others then look for the reason.
  if (!guard_) return;
  exit_hook_ = std::make_unique<ExitHook>([guard = guard_] { guard->leave(kLeaving, false); },
                                          ExitHook::Turn::kBeforeAll);
}

int WorldImpl::ranks_per_node() const {
  const auto told = env::get_int("DEEPSPEED_RANKS_PER_NODE");
  const int64_t ranks = told.value_or(job_.local_size);
  if (ranks >= 1 && job_.world_size % ranks == 0) return int(ranks);
  raise<UsageError>(told ? "DEEPSPEED_RANKS_PER_NODE is " : "the machine of this rank has ", ranks,
                    told ? "" : " ranks", ", expected a divisor of ", job_.world_size,
                    ", the ranks of the world, since nodes have equally many");
}

ProcessGroup WorldImpl::new_group(const std::vector<int>& global_ranks, const std::string& name) {
  return make_group(global_ranks, name, nullptr);
}

ProcessGroup WorldImpl::make_group(const std::vector<int>& global_ranks, const std::string& name,
                                   const c10::intrusive_ptr<c10d::ProcessGroup>& given) {
  check_ranks(global_ranks, name, job_.world_size);
  const std::lock_guard lock(mutex_);
  if (!make_group_) raise<UsageError>("the group '", name, "' was requested from a world that was left");
  const auto index = num_groups_++;
  const bool is_member = std::find(global_ranks.begin(), global_ranks.end(), job_.rank) != global_ranks.end();
  if (!is_member) return {};
  return make_group_({global_ranks, name, message(index, "/", name), /*is_own=*/false, given});
}

GroupFactory WorldImpl::group_factory(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (!make_group_) raise<UsageError>("the group '", name, "' was requested from a world that was left");
  return make_group_;
}

ProcessGroup WorldImpl::make_own_group(const std::string& purpose, GroupRequest request) {
  // This runs without the lock, since threads may make their groups in a different order on each rank.
  const GroupFactory make_group = group_factory(request.name);
  const std::string key = std::exchange(request.key, "own/" + request.key);
  request.is_own = true;
  if (request.global_ranks.size() == 1) return make_group(request);
  OwnGroups::Making making(own_groups_, key, purpose);
  const int64_t number = making.number();
  if (number > 1) request.name = message(request.name, " #", number);
  request.key = message("own/", key, "/", number);
  auto group = make_group(request);
  making.done(group.lifetime());
  return group;
}

ProcessGroup WorldImpl::own_group(const std::string& name, const std::string& purpose) {
  return own_group(name, purpose, all_ranks(job_.world_size));
}

ProcessGroup WorldImpl::own_group(const std::string& name, const std::string& purpose,
                                  const std::vector<int>& global_ranks) {
  check_ranks(global_ranks, name, job_.world_size);
  std::string key = name;
  if (int(global_ranks.size()) < job_.world_size) {
    for (const int rank : global_ranks) key += message(key.size() == name.size() ? "/" : ",", rank);
  }
  return make_own_group(purpose, {.global_ranks = global_ranks, .name = name, .key = key});
}

ProcessGroup WorldImpl::adopt_group(const c10::intrusive_ptr<c10d::ProcessGroup>& given,
                                    const std::vector<int>& global_ranks) {
  const std::string name = check_given_group(given);
  check_ranks(global_ranks, name, job_.world_size);
  const auto place = std::ranges::find(global_ranks, job_.rank) - global_ranks.begin();
  if (given->getSize() != std::ssize(global_ranks) || given->getRank() != place) {
    raise<UsageError>("the group '", name, "' has ", given->getSize(), " ranks and this one is its rank ",
                      given->getRank(), ", expected the ", global_ranks.size(),
                      " of global_ranks, of which rank ", job_.rank, " of the world is ",
                      place == std::ssize(global_ranks) ? "none" : message("number ", place));
  }
  // Groups without a name of their own are told apart by their ranks.
  std::string key = name + " of ranks";
  for (const int rank : global_ranks) key += " " + std::to_string(rank);
  return make_own_group("", {.global_ranks = global_ranks, .name = name, .key = key, .given = given});
}

void WorldImpl::end_calls_of_this_thread() {
  if (guard_) guard_->end_calls_of_this_thread();
}

WorldImpl::~WorldImpl() { leave(/*together=*/false); }

void WorldImpl::leave(bool together) {
  const std::lock_guard lock(mutex_);
  // This comes before connections close, because waiting ranks then look for the reason.
  exit_hook_ = nullptr;
  if (guard_) {
    guard_->leave(kLeaving, together);
    guard_->close_connections();
  }
  guard_ = nullptr;
  group_ = {};
  make_group_ = nullptr;
}

bool WorldImpl::was_left() const {
  const std::lock_guard lock(mutex_);
  return !make_group_;
}

void WorldImpl::end(const std::string& reason, bool completes) {
  std::shared_ptr<DivergenceGuard> guard;
  {
    const std::lock_guard lock(mutex_);
    guard = guard_;
  }
  if (guard && completes) guard->complete_groups();
  if (guard) guard->end_groups(reason);
  leave(/*together=*/false);
}

}  // namespace deepspeed::comm
