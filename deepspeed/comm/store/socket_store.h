// Implements c10d's store interface for a client of a job's store. Internal to this folder and to the code
// that uses the store to meet.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "deepspeed/comm/store/store_message.h"
#include "deepspeed/comm/store/store_server.h"
#include "deepspeed/net/socket.h"

namespace deepspeed::comm {

/// Talks to a StoreServer over one connection. It makes one call at a time, even if that waits. clone() it
/// for a thread that must not wait for others. Calls behave like those of c10d's TCPStore. They throw
/// DistStoreError if keys do not appear in time, and DistNetworkError after the server is gone. Thread-safe.
class SocketStore final : public c10d::Store {
 public:
  /// Takes a connection that the server has greeted. On the rank that serves, it also takes the server, which
  /// ends with this object. Clones connect to `address`.
  SocketStore(net::SocketAddress address, Descriptor socket, std::chrono::milliseconds timeout,
              std::shared_ptr<StoreServer> server = nullptr);
  ~SocketStore() override;

  /// Returns rank 0's numeric host. It is loopback if all ranks are on its machine.
  std::string host() const { return net::numeric_host(address_); }

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
  /// Sends the call and returns the reply. StoreCall describes `texts` and `number`. `limit` is how long the
  /// call may wait for its keys; unset, it does not wait.
  StoreMessage call(StoreCall call, std::vector<std::string> texts, int64_t number = 0,
                    std::optional<std::chrono::milliseconds> limit = std::nullopt);
  StoreMessage exchange(const StoreMessage& request, net::Deadline deadline);

  const net::SocketAddress address_;
  const std::shared_ptr<StoreServer> server_;
  const pid_t process_;
  std::mutex mutex_;
  Descriptor socket_;
  std::string received_;
  std::string lost_;  // why there is no connection
};

/// Greets the server as the given rank of a world. Rank -1 is another client of a joined process. Returns
/// false, with why_not, if the server is no store, expects another job, or has another secret.
bool greet_store(int socket, int rank, int world_size, net::Deadline deadline, std::string& why_not);

/// Connects to a listening server and greets it. Tries again until the deadline if too many clients are
/// waiting, or if the connection ends before the greeting is answered. A server under load may close a
/// connection that it has not read. On failure it returns no socket, and `why_not` gives the reason.
Descriptor reach_store(const net::SocketAddress& address, int rank, int world_size, net::Deadline deadline,
                       std::string& why_not);

}  // namespace deepspeed::comm
