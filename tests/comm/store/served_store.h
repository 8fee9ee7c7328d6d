// Provides a job's store served by a test, and connections to it.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deepspeed/comm/store/socket_store.h"
#include "deepspeed/comm/store/store_server.h"

namespace deepspeed::comm {

using StorePtr = c10::intrusive_ptr<c10d::Store>;

inline StoreAddress own_address() {
  static std::atomic<int> number = 0;
  return local_store_address("deepspeed-cpp-test/" + std::to_string(::getpid()) + "/" +
                             std::to_string(++number));
}

inline StoreAddress address_of_loopback() {
  StoreAddress address;
  auto& four = reinterpret_cast<sockaddr_in&>(address.address);
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.length = sizeof(four);
  return address;
}

/// Returns a connection to the server before any greeting.
inline Descriptor connection_to(const StoreAddress& address) {
  std::string why_not;
  auto socket = connect_to(address, std::chrono::steady_clock::now() + std::chrono::seconds(60), why_not);
  EXPECT_TRUE(socket) << why_not;
  return socket;
}

/// Is a server with the store of its own rank, 0 of `ranks`.
struct Served {
  explicit Served(StoreAddress where = own_address(), int ranks = 2) {
    auto listener = listen_at(where);
    EXPECT_TRUE(listener) << std::strerror(errno);
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&where.address), &where.length);
    address = where;
    auto server = std::make_shared<StoreServer>(std::move(listener), ranks);
    auto socket = connection_to(address);
    std::string why_not;
    EXPECT_TRUE(greet_store(socket.get(), 0, ranks, {}, why_not)) << why_not;
    store = c10::make_intrusive<SocketStore>(address, std::move(socket), std::chrono::seconds(60),
                                             std::move(server));
  }
  /// Returns why a rank may not join, or "".
  std::string joins_as(int rank, int ranks, Descriptor& socket) const {
    socket = connection_to(address);
    std::string why_not;
    greet_store(socket.get(), rank, ranks, {}, why_not);
    return why_not;
  }

  StoreAddress address;
  StorePtr store;
};

/// Waits for something that another thread or process is about to do.
inline void until(const std::function<bool()>& done) {
  for (int i = 0; i < 60000 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(done());
}

}  // namespace deepspeed::comm
