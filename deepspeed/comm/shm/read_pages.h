// Tracks the pages of a peer's arena that this process has read. The system counts them as memory of both
// processes, and limits on a process's memory may count them too. So they are unmapped beyond a budget; the
// next read maps them again.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "deepspeed/comm/shm/memory.h"
#include "deepspeed/device/memory/addresses.h"

namespace deepspeed::comm::shm {

/// Tracks the mapped pages of one arena. Not thread-safe.
class ReadPages {
 public:
  /// `page` is the system's page size or a multiple of it.
  explicit ReadPages(std::shared_ptr<Mapping> arena, size_t page = device::page_bytes())
      : arena_(std::move(arena)), page_(page) {}

  /// Notes `bytes` at `data`, an address in the arena's mapping, as read. Unmaps all noted pages if they
  /// exceed `budget`, in bytes.
  void note(const char* data, size_t bytes, size_t budget);
  size_t noted_bytes() const { return noted_bytes_; }

 private:
  void let_go();

  std::shared_ptr<Mapping> arena_;
  size_t page_;
  std::map<size_t, size_t> noted_;  // the end of each range by its beginning; ranges are disjoint
  size_t noted_bytes_ = 0;
};

}  // namespace deepspeed::comm::shm
