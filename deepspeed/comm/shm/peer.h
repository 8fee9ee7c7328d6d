// A peer is another process of the machine, at the other end of a socket that hangs up when the process ends.
#pragma once

#include <memory>
#include <string>

#include "deepspeed/comm/shm/descriptor.h"
#include "deepspeed/comm/shm/memory.h"

namespace deepspeed::comm::shm {

/// Says whether the process at the other end of a connected socket runs as the user of this one: nobody else
/// is told or believed anything. user: gets whose it is, where that is known.
bool is_of_this_user(const Descriptor& socket, std::string* user = nullptr);

class Peer {
 public:
  Peer() = default;
  /// Takes a connected socket. arena: the other's, read-only; null where it has none.
  Peer(Descriptor socket, std::shared_ptr<Mapping> arena);
  Peer(Peer&&) = default;
  Peer& operator=(Peer&&) = default;

  int socket() const { return socket_.get(); }
  int process() const { return process_; }
  const char* arena() const { return arena_ ? arena_->data() : nullptr; }
  const std::shared_ptr<Mapping>& arena_mapping() const { return arena_; }
  size_t arena_bytes() const { return arena_ ? arena_->bytes() : 0; }
  /// Says whether the process ended or closed its end.
  bool is_gone() const;
  /// Ends the connection for both sides, whoever else holds the socket: children inherit it.
  void hang_up() const;

 private:
  Descriptor socket_;
  Descriptor process_handle_;  // tells an end that a child of the process hides,
                               // where the system has it
  std::shared_ptr<Mapping> arena_;
  int process_ = 0;
};

}  // namespace deepspeed::comm::shm
