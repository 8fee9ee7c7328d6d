#include "deepspeed/comm/monitored_barrier.h"

#include <thread>

#include "deepspeed/base/error.h"

namespace deepspeed::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How long the others wait for the first rank's word after the time is up.
constexpr milliseconds kAnswerGrace(2000);
constexpr milliseconds kPoll(5);

// Asks again and again, since a wait of the store would keep this process' other threads from it.
bool appears(c10d::Store& store, const std::string& key, Clock::time_point deadline) {
  while (!store.check({key})) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

class Barrier {
 public:
  Barrier(const GroupDescription& group, c10d::Store& store, uint64_t number, milliseconds timeout,
          bool name_all)
      : group_(group),
        store_(store),
        prefix_("monitored_barrier/" + std::to_string(number) + "/"),
        timeout_(timeout),
        deadline_(Clock::now() + timeout),
        name_all_(name_all) {}

  void wait() {
    store_.set(arrival_of(group_.rank), std::string("1"));
    if (group_.rank == 0) {
      const auto missing = missing_from(1);
      store_.set(prefix_ + "missing", "(" + missing);  // never empty
      return fail_for(missing);
    }
    if (!appears(store_, prefix_ + "missing", deadline_ + kAnswerGrace)) return fail_for(missing_from(0));
    const auto word = store_.get(prefix_ + "missing");
    fail_for(std::string(word.begin() + 1, word.end()));
  }

 private:
  std::string arrival_of(int rank) const { return prefix_ + std::to_string(group_.global_ranks.at(rank)); }

  std::string missing_from(int first) {
    std::string missing;
    for (int rank = first; rank < group_.size(); ++rank) {
      if (appears(store_, arrival_of(rank), deadline_)) continue;
      missing += (missing.empty() ? "" : ", ") + std::to_string(group_.global_ranks.at(rank));
      if (!name_all_) break;
    }
    return missing;
  }

  void fail_for(const std::string& missing) const {
    if (missing.empty()) return;
    raise<CommError>("comm", "monitored_barrier of group '", group_.name, "': rank(s) ", missing,
                     " did not come within ", static_cast<double>(timeout_.count()) / 1000.0, " s");
  }

  const GroupDescription& group_;
  c10d::Store& store_;
  std::string prefix_;
  milliseconds timeout_;
  Clock::time_point deadline_;
  bool name_all_;
};

}  // namespace

void wait_at_monitored_barrier(const GroupDescription& group, c10d::Store& store, uint64_t number,
                               milliseconds timeout, bool name_all) {
  Barrier(group, store, number, timeout, name_all).wait();
}

}  // namespace deepspeed::comm
