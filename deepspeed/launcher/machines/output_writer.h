// Writes the output of ranks on other machines.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

namespace deepspeed::launcher {

/// Writes to standard output without waiting for its reader. What cannot be written yet is kept.
class OutputWriter {
 public:
  /// Adds output of the part with this number (Part::number).
  void add(int number, std::string bytes) {
    sizes_[number] += bytes.size();
    waiting_.emplace_back(number, std::move(bytes));
  }

  /// Returns how many bytes of a part are not written yet.
  size_t waiting_of(int number) const {
    const auto found = sizes_.find(number);
    return found == sizes_.end() ? 0 : found->second;
  }

  void append_poll_entries(std::vector<pollfd>& entries) const;

  /// Writes what standard output takes at once. Calls `written` for each piece of add() once all of it is
  /// written, with the part's number and the piece's size in bytes. If the reader has gone, everything counts
  /// as written.
  void write(const std::function<void(int, size_t)>& written);

  bool is_idle() const { return waiting_.empty(); }

 private:
  std::deque<std::pair<int, std::string>> waiting_;
  std::map<int, size_t> sizes_;
  size_t begin_ = 0;  // where the rest of the first piece begins
  bool reader_is_gone_ = false;
};

}  // namespace deepspeed::launcher
