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
  /// Keeps the last `max_lines` lines, each cut after 1,000 bytes. Of the lines before them it keeps those by
  /// which a C++ program names the exception that ended it: the frames of its stack may be more than the tail.
  explicit LineTail(size_t max_lines = 20) : max_lines_(max_lines) {}

  /// Takes the next bytes of the stream. They may end in the middle of a line.
  void append(std::string_view bytes);

  /// Returns the lines, oldest first, after those of the exception. An unfinished line counts, empty lines at the end do not.
  std::vector<std::string> lines() const;

 private:
  void drop_oldest();

  size_t max_lines_;
  std::vector<std::string> exception_;
  std::deque<std::string> lines_ = {""};  // the last one is still growing
};

/// Reads the last lines of a file. Returns none if it cannot be read.
std::vector<std::string> last_lines_of_file(const std::string& path, size_t max_lines = 20);

}  // namespace deepspeed::launcher
