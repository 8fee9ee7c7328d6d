#include "deepspeed/comm/watch/monitored_barrier.h"

#include "deepspeed/base/error.h"
#include "deepspeed/comm/group/store_polling.h"

namespace deepspeed::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How long the others wait for rank 0's answer after the time is up.
constexpr milliseconds kAnswerGrace(2000);

class Barrier {
 public:
  Barrier(const GroupDescription& group, c10d::Store& store, const std::string& name, milliseconds timeout,
          bool name_all)
      : group_(group),
        store_(store),
        prefix_("monitored_barrier/" + name + "/"),
        timeout_(timeout),
        deadline_(Clock::now() + timeout),
        name_all_(name_all) {}

  void wait() {
    // Rank 0 has answered, or another rank has given up waiting for the answer.
    if (store_.check({word_key()}) || store_.check({given_up_key()})) fail_as_late();
    store_.set(arrival_of(group_.rank), std::string("1"));
    if (group_.rank == 0) {
      const auto missing = missing_from(1);
      store_.set(word_key(), "(" + missing);  // never empty
      return fail_for(missing);
    }
    if (!appears(store_, word_key(), deadline_ + kAnswerGrace)) {
      store_.set(given_up_key(), std::string("1"));
      return fail_for(missing_from(0));
    }
    const auto word = store_.get(word_key());
    fail_for(std::string(word.begin() + 1, word.end()));
  }

 private:
  std::string word_key() const { return prefix_ + "missing"; }
  std::string given_up_key() const { return prefix_ + "given_up"; }
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

  [[noreturn]] void fail_as_late() const {
    raise<CommError>("monitored_barrier of group '", group_.name, "': rank ",
                     group_.global_ranks.at(group_.rank), " came after the others had given up");
  }

  void fail_for(const std::string& missing) const {
    if (missing.empty()) return;
    raise<CommError>("monitored_barrier of group '", group_.name, "': rank(s) ", missing,
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

void MonitoredBarriers::wait(const GroupDescription& group, c10d::Store& store, uint64_t num_collectives,
                             milliseconds timeout, bool name_all) {
  if (num_collectives != num_collectives_) num_since_ = 0;
  num_collectives_ = num_collectives;
  const auto name = std::to_string(num_collectives) + "/" + std::to_string(num_since_++);
  Barrier(group, store, name, timeout, name_all).wait();
}

}  // namespace deepspeed::comm
