// Writes what the ranks of other machines print.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

namespace deepspeed::launcher {

/// Writes to standard output without ever waiting for its reader: what it does not take is kept.
class OutputWriter {
 public:
  /// Adds bytes of the part with that number.
  void add(int number, std::string bytes) {
    sizes_[number] += bytes.size();
    waiting_.emplace_back(number, std::move(bytes));
  }

  /// Returns how many bytes of a part wait.
  size_t waiting_of(int number) const {
    const auto found = sizes_.find(number);
    return found == sizes_.end() ? 0 : found->second;
  }

  void append_poll_entries(std::vector<pollfd>& entries) const;

  /// Writes what goes without waiting; tells `written` of each piece that has gone: the part's number, and
  /// how many bytes. Where the reader is gone, all counts as written.
  void write(const std::function<void(int, size_t)>& written);

  bool is_idle() const { return waiting_.empty(); }

 private:
  std::deque<std::pair<int, std::string>> waiting_;
  std::map<int, size_t> sizes_;
  size_t begin_ = 0;  // of what is left of the first one
  bool reader_is_gone_ = false;
};

}  // namespace deepspeed::launcher
