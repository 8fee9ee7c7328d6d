// Serves a job's store to the processes of its ranks. Internal to this folder and to the code that uses the
// store to meet.
#pragma once

#include <memory>

#include "deepspeed/base/descriptor.h"

namespace deepspeed::comm {

/// Answers at a listening socket in its own thread until it is destroyed. A client that ends or sends
/// something invalid is dropped. One that does not read its replies waits without delaying others. A client
/// that sends no greeting is dropped after ten seconds, or earlier if many wait.
class StoreServer {
 public:
  /// Takes over `listener`, a listening socket. `reserved`, if given, is a second socket that the server only
  /// keeps open, so that no other program takes its port. Each of the `world_size` ranks joins once. After
  /// all have joined, further ranks are told that they belong to another job. If `listener` is a Unix socket,
  /// connections of other users are closed at once. Throws CommError.
  StoreServer(Descriptor listener, int world_size, Descriptor reserved = {});
  ~StoreServer();
  /// Closes the listening socket, and the socket that keeps its port (the constructor's `reserved`).
  /// Connected clients stay.
  void stop_listening();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace deepspeed::comm
