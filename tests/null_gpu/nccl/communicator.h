// A communicator of ranks of one machine, which move bytes through a file of shared memory.
//
// As NCCL's, it is made where all ranks have come, and holds them until then; its operations are work of
// streams, and wait for the other ranks there. A message ends where the other side has read it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace null_gpu {

constexpr size_t kPieceBytes = 256 << 10;   // of a collective, from each rank
constexpr size_t kMessageBytes = 64 << 10;  // of a message, at a time

/// What every rank reads of one rank's part in a collective.
struct Part {
  uint64_t kind = 0, bytes = 0;  // alike on all ranks
  alignas(64) char piece[kPieceBytes];
};

/// A message from one rank to another, in pieces.
struct Mailbox {
  std::atomic<uint32_t> written{0}, read{0};
  alignas(64) char piece[kMessageBytes];
};

class Communicator {
 public:
  /// Meets the other ranks. Ends the process, naming who has not come, after NULL_NCCL_PATIENCE seconds (60).
  Communicator(const std::string& id, int rank, int size);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& id() const { return id_; }
  /// Returns the name of the next split, which is the same on all ranks.
  std::string id_of_split() { return id_ + "." + std::to_string(splits_++); }

  /// Shares `bytes` of each rank with all: take(rank, data, offset, bytes) is called for each piece, rank
  /// after rank. kind: what ranks must agree on. Returns false where the communicator was aborted before the
  /// end.
  using Take = std::function<void(int rank, const char* data, size_t offset, size_t bytes)>;
  bool share(uint64_t kind, const char* data, size_t bytes, const Take& take);

  struct Message {
    bool is_send = false;
    int peer = 0;
    char* data = nullptr;
    size_t bytes = 0, done = 0;
    uint32_t pieces = 0;  // of a send, that were written
  };
  /// Moves messages to and from other ranks, all at a time. Returns false as share() does.
  bool exchange(std::vector<Message> messages);

  /// Counts operations that the host has given and the device has not ended.
  void begin_operation();
  void end_operation();
  /// Waits until all of them have ended.
  void finish();
  /// Ends them where they stand; their memory stays as it is then. Returns how many.
  int abort();
  bool is_aborted() const { return is_aborted_; }

 private:
  struct Header;
  Part& part_of(int rank) const;
  Mailbox& mailbox(int from, int to) const;
  bool meet(const char* what);
  bool advance(Message& message);

  const std::string id_;
  const int rank_, size_;
  size_t bytes_ = 0;
  Header* header_ = nullptr;
  std::atomic<bool> is_aborted_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  int under_way_ = 0;
  int splits_ = 0;
};

}  // namespace null_gpu
