#include "deepspeed/comm/shm/read_pages.h"

#include <algorithm>

#include <sys/mman.h>

namespace deepspeed::comm::shm {

void ReadPages::note(const char* data, size_t bytes, size_t budget) {
  if (bytes == 0) return;
  const auto offset = static_cast<size_t>(data - arena_->data());
  size_t begin = offset / page_ * page_;
  size_t end = std::min((offset + bytes + page_ - 1) / page_ * page_, arena_->bytes());
  auto next = noted_.upper_bound(begin);
  if (next != noted_.begin() && std::prev(next)->second >= begin) --next;
  while (next != noted_.end() && next->first <= end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    noted_bytes_ -= next->second - next->first;
    next = noted_.erase(next);
  }
  noted_[begin] = end;
  noted_bytes_ += end - begin;
  if (noted_bytes_ > budget) let_go();
}

void ReadPages::let_go() {
  // Memory that is shared keeps its content: the pages are its owner's.
  for (const auto& [begin, end] : noted_) ::madvise(arena_->data() + begin, end - begin, MADV_DONTNEED);
  noted_.clear();
  noted_bytes_ = 0;
}

}  // namespace deepspeed::comm::shm
