#include <algorithm>
#include <numeric>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/world_impl.h"

namespace deepspeed::comm {
namespace {

// How long a rank that leaves may take to say so.
constexpr std::chrono::milliseconds kLeaving(500);

const World::Impl& checked_world(const std::shared_ptr<World::Impl>& impl) {
  if (!impl) raise<UsageError>("the world is empty; call init_distributed() first");
  return *impl;
}

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

World::Impl::Impl(Job job, GroupFactory make_group, std::shared_ptr<DivergenceGuard> guard)
    : job_(std::move(job)), make_group_(std::move(make_group)), guard_(std::move(guard)) {
  group_ = new_group(all_ranks(job_.world_size), "world");
  // A program that ends without destroying its world (an error that main() reports, say) still tells the
  // ranks that wait for it.
  if (guard_) exit_hook_ = std::make_unique<ExitHook>([guard = guard_] { guard->leave(kLeaving, false); });
}

ProcessGroup World::Impl::new_group(const std::vector<int>& global_ranks, const std::string& name) {
  check_ranks(global_ranks, name, job_.world_size);
  const std::lock_guard lock(mutex_);
  if (!make_group_) raise<UsageError>("the group '", name, "' was asked of a world that was left");
  const auto index = num_groups_++;
  const bool is_member = std::find(global_ranks.begin(), global_ranks.end(), job_.rank) != global_ranks.end();
  return is_member ? make_group_({global_ranks, name, message(index, "/", name)}) : ProcessGroup();
}

World::Impl::GroupFactory World::Impl::group_factory(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (!make_group_) raise<UsageError>("the group '", name, "' was asked of a world that was left");
  return make_group_;
}

ProcessGroup World::Impl::own_group(const std::string& name, const std::string& purpose) {
  // It runs without the lock: threads may make theirs in one order here and in another one there.
  const GroupFactory make_group = group_factory(name);
  if (job_.world_size == 1) return make_group({{0}, name, "own/" + name, /*is_own=*/true});
  OwnGroups::Making making(own_groups_, name, purpose);
  const int64_t number = making.number();
  auto group = make_group({all_ranks(job_.world_size), number == 1 ? name : message(name, " #", number),
                           message("own/", name, "/", number), /*is_own=*/true});
  making.done(group.lifetime());
  return group;
}

void World::Impl::end_calls_of_this_thread() {
  if (guard_) guard_->end_calls_of_this_thread();
}

World::Impl::~Impl() { leave(/*together=*/false); }

void World::Impl::leave(bool together) {
  const std::lock_guard lock(mutex_);
  // Before the connections close: those who wait look for the reason then.
  exit_hook_ = nullptr;
  if (guard_) {
    guard_->leave(kLeaving, together);
    guard_->close_connections();
  }
  guard_ = nullptr;
  group_ = {};
  make_group_ = nullptr;
}

int World::rank() const { return checked_world(impl_).job().rank; }
int World::size() const { return checked_world(impl_).job().world_size; }
int World::local_rank() const { return checked_world(impl_).job().local_rank; }
int World::local_size() const { return checked_world(impl_).job().local_size; }
const ProcessGroup& World::group() const { return checked_world(impl_).group(); }

ProcessGroup World::new_group(const std::vector<int>& global_ranks, const std::string& name) const {
  checked_world(impl_);
  return impl_->new_group(global_ranks, name);
}

ProcessGroup World::own_group(const std::string& name, const std::string& purpose) const {
  checked_world(impl_);
  return impl_->own_group(name, purpose);
}

void World::shutdown() {
  checked_world(impl_);
  if (impl_->group()) {
    Work barrier = impl_->group().start_barrier();
    impl_->end_calls_of_this_thread();  // ranks that wait for it elsewhere are told
    barrier.wait();
  }
  impl_->leave(/*together=*/true);
}

}  // namespace deepspeed::comm
