// A client of a job's store, as c10d wants one. Internal to this folder and to who meets.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/store/store_address.h"
#include "deepspeed/comm/store/store_message.h"
#include "deepspeed/comm/store/store_server.h"

namespace deepspeed::comm {

/// Talks to a StoreServer over one connection, one call at a time, also one that waits: clone() it for a
/// thread that must not wait for another. Its calls do, and throw, what those of c10d's TCPStore do:
/// DistStoreError where keys do not come in time, DistNetworkError once the server is gone. Any thread may
/// call.
class SocketStore final : public c10d::Store {
 public:
  /// Takes a connection that the server has greeted, and, on the rank that serves, the server, which ends
  /// with it. Clones connect to `address`.
  SocketStore(StoreAddress address, Descriptor socket, std::chrono::milliseconds timeout,
              std::shared_ptr<StoreServer> server = nullptr);
  ~SocketStore() override;

  /// Returns the host of rank 0 as a number; loopback's where all ranks are on its machine.
  std::string host() const { return numeric_host(address_); }

  c10::intrusive_ptr<c10d::Store> clone() override;
  using c10d::Store::compareSet;
  using c10d::Store::set;
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& current,
                                  const std::vector<uint8_t>& next) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  const std::chrono::milliseconds& getTimeout() const noexcept override { return timeout_; }
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }
  void queuePush(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> queuePop(const std::string& key, bool block) override;
  int64_t queueLen(const std::string& key) override;
  std::vector<std::string> listKeys() override;

 private:
  /// Sends the call and returns the reply. limit: how long it may wait for its keys; nothing: it does not
  /// wait.
  StoreMessage call(StoreCall call, std::vector<std::string> texts, int64_t number = 0,
                    std::optional<std::chrono::milliseconds> limit = std::nullopt);
  StoreMessage exchange(const StoreMessage& request, Deadline deadline);

  const StoreAddress address_;
  const std::shared_ptr<StoreServer> server_;
  const pid_t process_;
  std::mutex mutex_;
  Descriptor socket_;
  std::string received_;
  std::string lost_;  // why there is no connection any more
};

/// Greets the server at the other end: as the given rank of so many, or as a further client of a process that
/// has joined (-1). False, with why_not, where it is no store, or one that expects somebody else.
bool greet_store(int socket, int rank, int world_size, Deadline deadline, std::string& why_not);

/// Connects to a server that is there and greets it. Comes again, until the deadline, where many wait to be
/// let in, and where the connection ends before its greeting is answered: a server under load may close one
/// that it has not read. Without a socket `why_not` says why.
Descriptor reach_store(const StoreAddress& address, int rank, int world_size, Deadline deadline,
                       std::string& why_not);

}  // namespace deepspeed::comm
