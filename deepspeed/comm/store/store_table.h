// Holds the keys of a job's store and its joined ranks, without any connection. Internal to this folder.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "deepspeed/comm/store/store_message.h"

namespace deepspeed::comm {

class StoreTable {
 public:
  struct Outcome {
    std::optional<StoreMessage> reply;  // unset: the call waits
    std::string awaited;                // the key that it waits for
    std::vector<std::string> changed;   // keys that others may have waited for
  };

  /// Answers a call like c10d's stores. Throws CommError for an unknown call or a wrong number of texts.
  Outcome answer(const StoreMessage& request);

 private:
  bool has(const std::string& key) const;
  const std::string* first_missing(const std::vector<std::string>& keys) const;
  StoreMessage compare_set(const StoreMessage& request, std::vector<std::string>& changed);
  StoreMessage add(const StoreMessage& request);
  std::string pop(const std::string& key);
  StoreMessage list() const;

  std::unordered_map<std::string, std::string> values_;
  std::unordered_map<std::string, std::deque<std::string>> queues_;  // none is empty
};

/// Holds the ranks that have joined a job through its store. Each joins once, but a rank that ends before all
/// have joined may join again.
class JoinedRanks {
 public:
  explicit JoinedRanks(int world_size) : world_size_(world_size) {}

  /// Returns why a process may not join as this rank, or "".
  std::string why_not(int64_t rank, int64_t world_size) const;
  void join(int rank) { joined_.insert(rank); }
  void leave(int rank) {
    if (!are_all_there()) joined_.erase(rank);
  }

 private:
  bool are_all_there() const { return static_cast<int>(joined_.size()) == world_size_; }

  const int world_size_;
  std::set<int> joined_;
};

}  // namespace deepspeed::comm
