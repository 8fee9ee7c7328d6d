#include "tests/null_gpu/nccl/communicator.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace null_gpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostRanks = 64;

// Other processes change what is waited for; they are many on few cores, so that this sleeps soon.
class Pause {
 public:
  void operator()() {
    if (++count_ < 20) return std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(count_ < 200 ? 50 : 500));
  }

 private:
  int count_ = 0;
};

}  // namespace

struct Communicator::Header {
  std::atomic<uint32_t> num_come{0};
  std::atomic<uint32_t> has_come[kMostRanks] = {};
  std::atomic<uint64_t> meetings{0};  // arrivals, of all ranks
};

Communicator::Communicator(const std::string& id, int rank, int size) : id_(id), rank_(rank), size_(size) {
  const char* const folder = std::getenv("NULL_NCCL_FOLDER");
  const std::string path = (folder != nullptr ? folder : "/dev/shm") + ("/null_nccl." + id);
  const size_t ranks = size_t(size);
  bytes_ = sizeof(Header) + 64 + ranks * sizeof(Part) + ranks * ranks * sizeof(Mailbox);
  const int file = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 || size > kMostRanks || ::ftruncate(file, off_t(bytes_)) != 0) {
    std::fprintf(stderr, "[null nccl] %s cannot be made\n", path.c_str());
    std::_Exit(99);
  }
  void* const made = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  header_ = static_cast<Header*>(made);  // all zeros is its first state
  header_->has_come[rank] = 1;
  if (header_->num_come.fetch_add(1) + 1 == uint32_t(size)) ::unlink(path.c_str());

  const char* const asked = std::getenv("NULL_NCCL_PATIENCE");
  const auto end = Clock::now() + std::chrono::seconds(asked != nullptr ? std::atoi(asked) : 60);
  for (Pause pause; header_->num_come < uint32_t(size); pause()) {
    if (Clock::now() < end) continue;
    for (int other = 0; other < size; ++other) {
      if (header_->has_come[other] == 0)
        std::fprintf(stderr, "[null nccl] rank %d of %d waits in vain for rank %d to make communicator %s\n",
                     rank, size, other, id_.c_str());
    }
    ::unlink(path.c_str());
    std::_Exit(99);
  }
}

Communicator::~Communicator() { ::munmap(header_, bytes_); }

Part& Communicator::part_of(int rank) const {
  char* const parts = reinterpret_cast<char*>(header_) + (sizeof(Header) + 63) / 64 * 64;
  return reinterpret_cast<Part*>(parts)[rank];
}

Mailbox& Communicator::mailbox(int from, int to) const {
  return reinterpret_cast<Mailbox*>(&part_of(size_))[from * size_ + to];
}

/// Waits until all ranks are here.
bool Communicator::meet(const char* what) {
  (void)what;
  const auto number = uint64_t(size_);
  const uint64_t all = (header_->meetings.fetch_add(1) / number + 1) * number;
  for (Pause pause; header_->meetings < all; pause()) {
    if (is_aborted_) return false;
  }
  return !is_aborted_;
}

bool Communicator::share(uint64_t kind, const char* data, size_t bytes, const Take& take) {
  Part& own = part_of(rank_);
  own.kind = kind;
  own.bytes = bytes;
  for (size_t offset = 0; offset == 0 || offset < bytes; offset += kPieceBytes) {
    const size_t size = std::min(kPieceBytes, bytes - offset);
    if (data != nullptr && size > 0) std::memcpy(own.piece, data + offset, size);
    if (!meet("a collective")) return false;
    for (int rank = 0; rank < size_; ++rank) {
      const Part& part = part_of(rank);
      if (part.kind != kind || part.bytes != bytes) {
        std::fprintf(
            stderr,
            "[null nccl] ranks %d and %d of communicator %s differ: %zu bytes of kind %zx, %zu of %zx\n",
            rank_, rank, id_.c_str(), bytes, size_t(kind), size_t(part.bytes), size_t(part.kind));
        std::abort();
      }
      if (size > 0) take(rank, part.piece, offset, size);
    }
    if (!meet("the end of a collective")) return false;
  }
  return true;
}

/// Moves a piece of a message where that can be done now. Returns whether it was.
bool Communicator::advance(Message& message) {
  Mailbox& box = message.is_send ? mailbox(rank_, message.peer) : mailbox(message.peer, rank_);
  const size_t size = std::min(kMessageBytes, message.bytes - message.done);
  const bool is_empty = box.written == box.read;
  if (message.is_send ? !is_empty : is_empty) return false;
  if (message.is_send) {
    std::memcpy(box.piece, message.data + message.done, size);
    box.written.fetch_add(1);
  } else {
    std::memcpy(message.data + message.done, box.piece, size);
    box.read.fetch_add(1);
  }
  message.done += size;
  return true;
}

bool Communicator::exchange(std::vector<Message> messages) {
  const auto has_ended = [this](const Message& message) {
    if (message.done < message.bytes) return false;
    if (!message.is_send) return true;
    const Mailbox& box = mailbox(rank_, message.peer);
    return box.written == box.read;
  };
  for (Pause pause; !messages.empty();) {
    if (is_aborted_) return false;
    bool has_moved = false;
    std::vector<std::pair<bool, int>> busy;  // one message a way at a time, in order
    for (Message& message : messages) {
      const std::pair way(message.is_send, message.peer);
      if (std::ranges::find(busy, way) != busy.end()) continue;
      busy.push_back(way);
      while (message.done < message.bytes && advance(message)) has_moved = true;
    }
    std::erase_if(messages, has_ended);
    if (has_moved) {
      pause = {};
    } else if (!messages.empty()) {
      pause();
    }
  }
  return true;
}

void Communicator::begin_operation() {
  const std::lock_guard lock(mutex_);
  ++under_way_;
}

void Communicator::end_operation() {
  const std::lock_guard lock(mutex_);
  --under_way_;
  ended_.notify_all();
}

void Communicator::finish() {
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return under_way_ == 0; });
}

int Communicator::abort() {
  const std::lock_guard lock(mutex_);
  is_aborted_ = true;
  return under_way_;
}

}  // namespace null_gpu
