// Copies the ranks' standard error to this process's own, and remembers each rank's last lines.
#pragma once

#include <string>
#include <vector>

#include <poll.h>

#include "deepspeed/launcher/node/line_tail.h"

namespace deepspeed::launcher {

/// Relays without waiting for the reader of standard error. If the reader stops reading, the ranks' pipes
/// fill up.
class OutputRelay {
 public:
  ~OutputRelay();

  /// Adds a rank. `fd` is the non-blocking read end of its standard error, which this object now owns. It is
  /// -1 if the rank writes to `log_file` instead.
  void add(int rank, int fd, const std::string& log_file);

  /// Adds the descriptors that poll() should wait for.
  void append_poll_entries(std::vector<pollfd>& entries) const;

  /// Copies what the ranks have written, at most one chunk from each.
  void relay();

  /// Copies everything that the ranks have written. What the reader does not take at once is only remembered.
  void drain();

  /// Returns the rank's last lines, oldest first.
  std::vector<std::string> last_lines(int rank) const;

 private:
  struct Stream {
    int rank;
    int fd;
    std::string log_file;
    LineTail tail;
  };

  /// Copies one chunk from a rank. Returns false if there is no more yet.
  bool read_chunk(Stream& stream);
  void pass_on(const char* bytes, size_t size);
  bool can_write() const;

  std::vector<Stream> streams_;
  bool blocked_ = false;  // the reader of standard error does not read
  bool gone_ = false;     // the reader has closed its end
};

}  // namespace deepspeed::launcher
