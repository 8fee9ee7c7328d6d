// Passes the ranks' standard error on to this process's own and remembers each rank's last lines.
#pragma once

#include <string>
#include <vector>

#include <poll.h>

#include "deepspeed/launcher/node/line_tail.h"

namespace deepspeed::launcher {

/// Relays without ever waiting for the reader of standard error: while it does not read, the ranks' pipes
/// fill up.
class OutputRelay {
 public:
  ~OutputRelay();

  /// Adds a rank. `fd` is the read end of its standard error, not blocking, owned from now on; or -1 with the
  /// log file in which the rank writes for itself.
  void add(int rank, int fd, const std::string& log_file);

  /// Adds the descriptors that poll() is to wait for.
  void append_poll_entries(std::vector<pollfd>& entries) const;

  /// Passes on what has come, at most a chunk from each rank.
  void relay();

  /// Passes on everything that has come; what the reader does not take at once is only remembered.
  void drain();

  /// The rank's last lines, oldest first.
  std::vector<std::string> last_lines(int rank) const;

 private:
  struct Stream {
    int rank;
    int fd;
    std::string log_file;
    LineTail tail;
  };

  /// Reads a chunk; returns false where nothing more is to be read now.
  bool read_chunk(Stream& stream);
  void pass_on(const char* bytes, size_t size);
  bool can_write() const;

  std::vector<Stream> streams_;
  bool blocked_ = false;  // the reader of standard error does not read
  bool gone_ = false;     // it has closed its end
};

}  // namespace deepspeed::launcher
