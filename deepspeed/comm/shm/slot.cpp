#include "deepspeed/comm/shm/slot.h"

#include <algorithm>
#include <climits>
#include <ctime>
#include <new>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace deepspeed::comm::shm {
namespace {

// This many pauses come before a wait sleeps: more cost time slices where ranks share cores, and gain nothing
// where they do not.
constexpr int kSpins = 200;

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // most of these processors do nothing at a yield
#endif
}

long futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* limit) {
  return ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, limit, nullptr, 0);
}

}  // namespace

// The order of both sides, all of it sequential, is what loses no wake-up: one writes the count and then
// looks for sleepers, the other says that it sleeps and then looks at the count.
void Counter::advance(uint32_t to) {
  value.store(to);
  if (sleepers.load() != 0) wake();
}

bool Counter::spin_until(uint32_t to) const {
  for (int i = 0; i < kSpins; ++i) {
    if (reached(to)) return true;
    pause_processor();
  }
  return reached(to);
}

bool Counter::sleep_until(uint32_t to, std::chrono::milliseconds limit) {
  sleepers.fetch_add(1);
  const uint32_t seen = value.load();
  if (static_cast<int32_t>(seen - to) < 0) {
    const timespec time{limit.count() / 1000, limit.count() % 1000 * 1'000'000};
    futex(value, FUTEX_WAIT, seen, &time);
  }
  sleepers.fetch_sub(1);
  return reached(to);
}

void Counter::wake() { futex(value, FUTEX_WAKE, INT_MAX, nullptr); }

namespace {

// This keeps what ranks write in lines of their own. It need not be a page of the system.
constexpr size_t kSlotUnit = 4096;
// Half a stage is this large: a piece that stays in the caches, and costs more than the waits for it.
constexpr size_t kMostStage = size_t{2} << 20;
constexpr size_t kLeastStage = size_t{256} << 10;
constexpr size_t kAllStages = size_t{8} << 20;  // of a group, where that leaves enough for each

size_t whole_units(size_t bytes) { return (bytes + kSlotUnit - 1) / kSlotUnit * kSlotUnit; }

// Blocks of ranks begin at units, so that those of two ranks share no line.
size_t block_bytes() { return whole_units(sizeof(RankBlock)); }
size_t readers_bytes(int size) { return whole_units(static_cast<size_t>(size) * sizeof(Counter)); }
size_t control_bytes(int size) { return static_cast<size_t>(size) * (block_bytes() + readers_bytes(size)); }

}  // namespace

size_t Slot::bytes(int size) {
  return control_bytes(size) + static_cast<size_t>(size) * 2 * stage_bytes(size);
}

size_t Slot::stage_bytes(int size) {
  return std::clamp(kAllStages / static_cast<size_t>(size) / kSlotUnit * kSlotUnit, kLeastStage, kMostStage);
}

void Slot::construct() const {
  for (int rank = 0; rank < size_; ++rank) {
    new (&of(rank)) RankBlock;
    for (int source = 0; source < size_; ++source) new (&read_of(rank, source)) Counter;
  }
}

RankBlock& Slot::of(int rank) const {
  return *reinterpret_cast<RankBlock*>(base_ + static_cast<size_t>(rank) * block_bytes());
}

Counter& Slot::read_of(int reader, int source) const {
  char* const readers = base_ + static_cast<size_t>(size_) * block_bytes();
  return reinterpret_cast<Counter*>(readers + static_cast<size_t>(reader) * readers_bytes(size_))[source];
}

char* Slot::stage(int rank, uint32_t piece) const {
  return base_ + control_bytes(size_) + (static_cast<size_t>(rank) * 2 + piece % 2) * stage_bytes(size_);
}

void Slot::wake_all() const {
  for (int rank = 0; rank < size_; ++rank) {
    RankBlock& block = of(rank);
    for (Counter* counter : {&block.posted, &block.reduced, &block.staged, &block.done}) counter->wake();
    for (int source = 0; source < size_; ++source) read_of(rank, source).wake();
  }
}

}  // namespace deepspeed::comm::shm
