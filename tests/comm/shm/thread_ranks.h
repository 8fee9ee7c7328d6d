// Threads of the test are the ranks of a group over shared memory: what a sanitizer of threads can follow.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/system/clock.h"
#include "deepspeed/comm/shm/collectives.h"
#include "deepspeed/comm/shm/meeting.h"

namespace deepspeed::testing {

/// A board in memory. get() waits ten seconds.
class ThreadBoard {
 public:
  comm::shm::Board board() {
    return {[this](const std::string& key, const std::string& text) {
              const std::lock_guard lock(mutex_);
              texts_[key] = text;
              changed_.notify_all();
            },
            [this](const std::string& key) {
              std::unique_lock lock(mutex_);
              if (!changed_.wait_for(lock, std::chrono::seconds(10), [&] { return texts_.count(key) != 0; }))
                throw CommError("nobody wrote " + key);
              return texts_[key];
            }};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> texts_;
};

inline std::vector<int> names_of_ranks(int size) {
  std::vector<int> names;
  for (int rank = 0; rank < size; ++rank) names.push_back(rank);
  return names;
}

/// Runs the body in a thread a rank; an exception fails the test.
inline void run_threads(int size, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&body, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Runs the body as the ranks of a group that share memory.
inline void run_members(int size, const std::function<void(comm::shm::Member& member)>& body,
                        bool with_arena = true) {
  ThreadBoard board;
  run_threads(size, [&](int rank) {
    comm::shm::MeetingPlan plan;
    plan.rank = rank;
    plan.names = names_of_ranks(size);
    plan.machine = "here";
    if (with_arena) plan.arena = comm::shm::Arena::of_process();
    auto met = comm::shm::meet(board.board(), std::move(plan));
    ASSERT_EQ(met.reason, "");
    body(*met.member);
  });
}

/// A call that all ranks make alike, with a minute's time.
inline comm::shm::Call same_call(uint64_t fingerprint = 1) {
  return {fingerprint, Clock::now() + std::chrono::minutes(1)};
}

}  // namespace deepspeed::testing
