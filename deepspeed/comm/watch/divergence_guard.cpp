// Implements the part of the guard that the program's threads call. watch() starts the guard's own thread
// with the first group (guard_state.h). explain() and leave() request an immediate exchange from it.
#include "deepspeed/comm/watch/divergence_guard.h"

#include <thread>
#include <utility>

#include "deepspeed/comm/group/absent_ranks.h"
#include "deepspeed/comm/watch/guard_state.h"
#include "deepspeed/comm/watch/own_thread.h"

namespace deepspeed::comm {

using std::chrono::milliseconds;

DivergenceGuard::DivergenceGuard(c10::intrusive_ptr<c10d::Store> store, int rank, ReasonToEnd reason_to_end,
                                 const std::vector<int>& neighbours)
    : state_(std::make_shared<GuardState>()) {
  state_->store = std::move(store);
  state_->rank = rank;
  state_->reason_to_end = std::move(reason_to_end);
  state_->unread.insert(neighbours.begin(), neighbours.end());
  note_presence(*state_->store, rank);
}

DivergenceGuard::~DivergenceGuard() { state_->stop(); }

std::shared_ptr<CallHistory> DivergenceGuard::watch(const std::string& key, const std::string& name,
                                                    const std::vector<int>& global_ranks, Check check,
                                                    std::function<void(const std::string&)> on_divergence,
                                                    std::function<void()> complete) {
  const bool compares_hashes = check == Check::kByTheGuard;
  auto history = compares_hashes ? std::make_shared<CallHistory>(name, global_ranks, kKept)
                                 : std::make_shared<CallHistory>(name, global_ranks);
  const std::lock_guard lock(state_->mutex);
  state_->groups[key] = {history, std::move(on_divergence), std::move(complete), global_ranks,
                         compares_hashes};
  if (!std::exchange(state_->has_thread, true)) {
    std::thread(&GuardState::serve, state_).detach();
    std::thread(&GuardState::watch_processes, state_).detach();
  }
  return history;
}

void DivergenceGuard::let_go(const std::string& key, std::shared_ptr<void> connections) {
  const std::lock_guard lock(state_->mutex);
  const auto group = state_->groups.find(key);
  if (state_->left || state_->ended || group == state_->groups.end()) return;  // they close with the argument
  group->second.is_let_go = true;
  group->second.connections = std::move(connections);
}

void DivergenceGuard::complete_groups() { state_->complete_groups(); }

void DivergenceGuard::end_groups(const std::string& reason) {
  state_->tell_and_end_here(state_->note_end(reason));
}

void DivergenceGuard::end_group(const std::string& key, const std::string& reason) {
  state_->tell_and_end_here(state_->note_end(reason, &key));
}

void DivergenceGuard::end_groups_if_due() {
  if (!state_->reason_to_end) return;
  const auto reason = state_->reason_to_end();
  if (!reason) return;
  complete_groups();
  end_groups(*reason);
}

void DivergenceGuard::end_calls_of_this_thread() {
  const std::lock_guard lock(state_->mutex);
  state_->ending_thread = caller_thread();
}

std::optional<std::string> DivergenceGuard::explain(const std::string& key, milliseconds limit) {
  if (!state_->wait_for_answer(state_->ask(), limit)) return std::nullopt;
  const std::lock_guard lock(state_->mutex);
  for (const Verdict& verdict : state_->answer) {
    if (verdict.group == key) return verdict.text;
  }
  return std::nullopt;
}

void DivergenceGuard::close_connections() {
  std::vector<std::shared_ptr<void>> closed;
  const std::lock_guard lock(state_->mutex);
  for (auto& [key, group] : state_->groups) closed.push_back(std::move(group.connections));
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
