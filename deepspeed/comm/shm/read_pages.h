// The pages of a peer's arena that this process has read. The system counts them as memory of both processes,
// and a limit on a process's memory may too: beyond a budget they are let go of here, and mapped again when
// they are read again.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "deepspeed/comm/shm/memory.h"
#include "deepspeed/device/memory/addresses.h"

namespace deepspeed::comm::shm {

/// Is used by one thread at a time.
class ReadPages {
 public:
  /// `page`: of the system, or a multiple of it.
  explicit ReadPages(std::shared_ptr<Mapping> arena, size_t page = device::page_bytes())
      : arena_(std::move(arena)), page_(page) {}

  /// Notes what was read, and lets go of all that is noted where it is more than the budget in bytes.
  void note(const char* data, size_t bytes, size_t budget);
  size_t noted_bytes() const { return noted_bytes_; }

 private:
  void let_go();

  std::shared_ptr<Mapping> arena_;
  size_t page_;
  std::map<size_t, size_t> noted_;  // the end of each range by its beginning, without common pages
  size_t noted_bytes_ = 0;
};

}  // namespace deepspeed::comm::shm
