#include "deepspeed/device/memory/library_pages.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "deepspeed/base/integers.h"
#include "deepspeed/device/memory/addresses.h"

namespace deepspeed::device {
namespace {

/// Holds the addresses of a read-only part of a library, in whole pages.
struct Segment {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

/// Reads the kernel's table of this process's pages: Documentation/admin-guide/mm/pagemap.rst of Linux.
class PageTable {
 public:
  PageTable() : file_(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)), entries_(size_t{1} << 14) {}
  ~PageTable() {
    if (file_ >= 0) ::close(file_);
  }
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  /// Returns how many pages of the segment are in memory. Returns nothing if one of them is not from its
  /// file, or if the table cannot be read.
  std::optional<int64_t> pages_of_file(const Segment& segment) noexcept {
    constexpr uint64_t kPresent = uint64_t{1} << 63, kSwapped = uint64_t{1} << 62,
                       kOfFile = uint64_t{1} << 61;
    int64_t present = 0;
    const uintptr_t last = segment.end / page_bytes;
    for (uintptr_t page = segment.begin / page_bytes; page < last;) {
      const size_t count = std::min<size_t>(last - page, entries_.size());
      const size_t bytes = count * sizeof(uint64_t);
      const auto offset = static_cast<off_t>(page * sizeof(uint64_t));
      if (::pread(file_, entries_.data(), bytes, offset) != static_cast<ssize_t>(bytes)) return std::nullopt;
      for (size_t index = 0; index < count; ++index) {
        if ((entries_[index] & kSwapped) != 0) return std::nullopt;
        if ((entries_[index] & kPresent) == 0) continue;
        if ((entries_[index] & kOfFile) == 0) return std::nullopt;
        ++present;
      }
      page += count;
    }
    return present;
  }

  const uintptr_t page_bytes = device::page_bytes();

 private:
  const int file_;
  std::vector<uint64_t> entries_;
};

struct Release {
  PageTable table;
  int64_t bytes = 0;
};

void release_segment(const Segment& segment, Release& release) noexcept {
  if (segment.begin >= segment.end) return;
  const auto pages = release.table.pages_of_file(segment);
  if (!pages || *pages == 0) return;
  void* const begin = reinterpret_cast<void*>(segment.begin);
  if (::madvise(begin, segment.end - segment.begin, MADV_DONTNEED) == 0)
    release.bytes += *pages * static_cast<int64_t>(release.table.page_bytes);
}

// Runs with the loader's lock held, so no library can be unloaded meanwhile. Relocated data, even if made
// read-only later, is in writable segments.
int release_library(dl_phdr_info* library, size_t, void* data) noexcept {
  Release& release = *static_cast<Release*>(data);
  const uintptr_t page = release.table.page_bytes;
  for (int index = 0; index < library->dlpi_phnum; ++index) {
    const auto& header = library->dlpi_phdr[index];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_W) != 0) continue;
    const uintptr_t begin = library->dlpi_addr + header.p_vaddr, end = begin + header.p_memsz;
    release_segment({round_up(begin, page), end / page * page}, release);
  }
  return 0;
}

// A forked process starts without any of these pages and holds only what it has used itself.
bool is_forked = false;
[[maybe_unused]] const int atfork_result = ::pthread_atfork(
    nullptr, nullptr, +[] { is_forked = true; });

}  // namespace

int64_t release_library_pages() {
  if (is_forked) return 0;
  Release release;
  ::dl_iterate_phdr(&release_library, &release);
  return release.bytes;
}

}  // namespace deepspeed::device
