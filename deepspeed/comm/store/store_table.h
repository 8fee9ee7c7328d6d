// The keys of a job's store, without any connection. Internal to this folder.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "deepspeed/comm/store/store_message.h"

namespace deepspeed::comm {

class StoreTable {
 public:
  struct Outcome {
    std::optional<StoreMessage> reply;  // nothing: the call waits
    std::string awaited;                // the key that it waits for
    std::vector<std::string> changed;   // keys for which others may have waited
  };

  /// Answers a call as c10d's stores do. Throws CommError for a call that has not the texts it needs.
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

}  // namespace deepspeed::comm
