// Keeps the last lines of a stream of text.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace deepspeed::launcher {

class LineTail {
 public:
  /// Keeps the last `max_lines` lines, each cut after 1,000 bytes.
  explicit LineTail(size_t max_lines = 20) : max_lines_(max_lines) {}

  /// Takes the next bytes of the stream. They may end in the middle of a line.
  void append(std::string_view bytes);

  /// Returns the lines, oldest first. An unfinished line counts, empty lines at the end do not.
  std::vector<std::string> lines() const;

 private:
  size_t max_lines_;
  std::deque<std::string> lines_ = {""};  // the last one is still growing
};

/// Reads the last lines of a file. Returns none if it cannot be read.
std::vector<std::string> last_lines_of_file(const std::string& path, size_t max_lines = 20);

}  // namespace deepspeed::launcher
