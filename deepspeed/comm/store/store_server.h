// Serves the store of a job to the processes of its ranks. Internal to this folder and to who meets.
#pragma once

#include <memory>

#include "deepspeed/comm/store/store_address.h"

namespace deepspeed::comm {

/// Answers at a listening socket, in a thread of its own, until it is destroyed. A client that ends, sends
/// what is no message or does not read is dropped or waits; it holds up nobody else. One that does not greet
/// is dropped after ten seconds, or earlier where many come.
class StoreServer {
 public:
  /// Takes a listening socket and, or null, `reserved`, which is kept as long. Each of the `world_size` ranks
  /// joins once: when all have, later ones are told that they mean another job. Where the socket is of this
  /// machine alone, connections of other users are closed at once. Throws CommError.
  StoreServer(Descriptor listener, int world_size, Descriptor reserved = {});
  ~StoreServer();
  /// Lets go of its address, and of `reserved`: nobody comes any more, those who are there stay.
  void stop_listening();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace deepspeed::comm
