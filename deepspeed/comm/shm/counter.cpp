#include "deepspeed/comm/shm/counter.h"

#include <climits>
#include <ctime>

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
  asm volatile("yield");
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

}  // namespace deepspeed::comm::shm
