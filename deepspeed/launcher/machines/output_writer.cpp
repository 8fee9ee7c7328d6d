#include "deepspeed/launcher/machines/output_writer.h"

#include <algorithm>
#include <cerrno>

#include <unistd.h>

namespace deepspeed::launcher {
namespace {

constexpr size_t kWriteChunk = 4096;  // a writable pipe takes this much without waiting

}  // namespace

void OutputWriter::append_poll_entries(std::vector<pollfd>& entries) const {
  if (!waiting_.empty() && !reader_is_gone_) entries.push_back({STDOUT_FILENO, POLLOUT, 0});
}

void OutputWriter::write(const std::function<void(int, size_t)>& written) {
  while (!waiting_.empty()) {
    const auto& [number, bytes] = waiting_.front();
    pollfd out{STDOUT_FILENO, POLLOUT, 0};
    while (begin_ < bytes.size() && !reader_is_gone_) {
      if (::poll(&out, 1, 0) != 1) return;
      const ssize_t size =
          ::write(STDOUT_FILENO, bytes.data() + begin_, std::min(bytes.size() - begin_, kWriteChunk));
      if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
      reader_is_gone_ = size < 0;
      if (size > 0) begin_ += static_cast<size_t>(size);
    }
    sizes_[number] -= bytes.size();
    written(number, bytes.size());
    waiting_.pop_front();
    begin_ = 0;
  }
}

}  // namespace deepspeed::launcher
