#include "deepspeed/comm/watch/failure.h"

#include <future>
#include <memory>
#include <set>
#include <thread>

#include "deepspeed/comm/group/quiet_backend.h"

namespace deepspeed::comm {
namespace {

using Clock = std::chrono::steady_clock;

std::string failure_key(int rank) { return "failed/" + std::to_string(rank); }

std::string list_of(const std::set<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

std::string describe_silent(const std::set<int>& silent) {
  if (silent.empty()) return "every rank is alive and failed too";
  return "no sign of life from rank" + std::string(silent.size() > 1 ? "s " : " ") + list_of(silent);
}

std::string text_of(const c10::intrusive_ptr<c10d::Store>& store, const std::string& key) {
  const std::vector<uint8_t> bytes = store->get(key);
  return {bytes.begin(), bytes.end()};
}

// Follows a broken chain of messages to its origin: a rank that also failed says which rank it waited for.
std::string follow_messages(const c10::intrusive_ptr<c10d::Store>& store, Clock::time_point deadline, int own,
                            int suspect) {
  std::set<int> failed = {own};
  try {
    while (true) {
      while (!store->check({failure_key(suspect)})) {
        if (Clock::now() >= deadline) return describe_silent({suspect});
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      failed.insert(suspect);
      const std::string waited_for = text_of(store, failure_key(suspect));
      if (waited_for.empty() || failed.count(std::stoi(waited_for)) != 0) return describe_silent({});
      suspect = std::stoi(waited_for);
    }
  } catch (const std::exception&) {
    return describe_silent({0, suspect});  // rank 0 held the store, and may have ended because of the other
  }
}

// Runs in its own thread, because a store whose server hangs never answers.
std::string ask_store(const GroupDescription& group, const c10::intrusive_ptr<c10d::Store>& store,
                      Clock::time_point deadline) {
  std::set<int> silent(group.global_ranks.begin(), group.global_ranks.end());
  silent.erase(group.global_ranks.at(group.rank));
  try {
    while (!silent.empty() && Clock::now() < deadline) {
      for (auto it = silent.begin(); it != silent.end();) {
        it = store->check({failure_key(*it)}) ? silent.erase(it) : std::next(it);
      }
      if (!silent.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  } catch (const std::exception&) {
    // Rank 0 holds the store. If it reported before it left, the other silent ranks are to blame.
    if (silent.count(0) != 0) return "no sign of life from rank 0";
  }
  return describe_silent(silent);
}

}  // namespace

std::string blame(const GroupDescription& group, const c10::intrusive_ptr<c10d::Store>& store,
                  const std::function<void()>& abort, std::chrono::milliseconds grace,
                  std::optional<int> peer) {
  const auto deadline = Clock::now() + grace;
  auto posted = std::make_shared<std::promise<void>>();
  auto answer = std::make_shared<std::promise<std::string>>();
  auto posted_future = posted->get_future();
  auto answer_future = answer->get_future();
  std::thread([group, store, deadline, posted, answer, peer] {
    const QuietBackend quiet;
    const int own = group.global_ranks.at(group.rank);
    try {
      store->set(failure_key(own), peer ? std::to_string(group.global_ranks.at(*peer)) : std::string());
    } catch (const std::exception&) {
      // ask_store() gets the same error and names the rank.
    }
    posted->set_value();
    answer->set_value(peer ? follow_messages(store, deadline, own, group.global_ranks.at(*peer))
                           : ask_store(group, store, deadline));
  }).detach();
  // The report comes first: a rank that sees closed connections asks for it at once.
  posted_future.wait_for(grace);
  abort();
  if (answer_future.wait_until(deadline + std::chrono::milliseconds(500)) != std::future_status::ready) {
    return "the store of rank 0 does not answer";
  }
  return answer_future.get();
}

}  // namespace deepspeed::comm
