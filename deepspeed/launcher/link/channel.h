// One end of the link between the launcher and the program on a machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <poll.h>

#include "deepspeed/base/descriptor.h"
#include "deepspeed/base/json.h"
#include "deepspeed/launcher/link/messages.h"

namespace deepspeed::launcher {

/// Sends and receives messages (messages.h), without waiting for the other end. A message is one line of
/// JSON. Messages are buffered in both directions. A line that is no message, or longer than limit_lines()
/// allows, closes the channel. The limit is 16 MiB at first.
class Channel {
 public:
  using Clock = std::chrono::steady_clock;

  /// Reads from one pipe and writes to another one.
  Channel(Descriptor read_end, Descriptor write_end);
  explicit Channel(Descriptor socket) : Channel(std::move(socket), Descriptor()) {}

  void send(const Json& message);
  template <Message Kind>
  void send(Kind message) {
    send(to_json(std::move(message)));
  }

  /// Sets the limit for received lines, in bytes.
  void limit_lines(size_t bytes) { max_line_ = bytes; }

  /// Adds an HMAC to each line from now on, and checks those of received lines. An HMAC covers a line's
  /// number and text, with the key of the line's direction. A line that is foreign, changed, left out or
  /// repeated closes the channel.
  void seal(std::string sending_key, std::string receiving_key);

  /// Skips lines that are no messages, until the first message comes. A shell's start-up files may print such
  /// text. More than 64 KiB of it closes the channel.
  void skip_noise() { skips_noise_ = true; }
  /// Returns at most the first 200 bytes of the skipped text.
  const std::string& noise() const { return noise_; }

  /// Adds the descriptors that poll() should wait for.
  void append_poll_entries(std::vector<pollfd>& entries) const;

  /// Reads and writes as much as possible without waiting. Returns the received messages, oldest first. Input
  /// that never pauses is read in parts, one a call.
  std::vector<Json> exchange();

  /// Returns whether the other end is gone. What it sent before has been read.
  bool is_closed() const { return !read_end_; }
  /// Closes the channel. `fault` tells what the other end did wrong.
  void close(const std::string& fault = "");
  /// Returns why the channel is closed: the other end has gone, or did something wrong.
  const std::string& fault() const { return fault_; }
  /// Returns the number of bytes that are not sent yet.
  size_t pending_bytes() const { return outgoing_.size(); }
  /// Returns the time since the last bytes were received.
  Clock::duration silence() const { return Clock::now() - last_heard_; }
  /// Restarts the time of silence().
  void forget_silence() { last_heard_ = Clock::now(); }

 private:
  /// Makes the HMACs of one direction; none without a key.
  struct Seal {
    std::string key;
    uint64_t count = 0;
    std::string of_next(std::string_view line);
  };
  void write_some();
  /// Returns whether there may be more to read at once.
  bool read_some();
  /// Returns the message on a line, without its seal. Returns nothing if there is none or the seal is wrong.
  std::optional<Json> message_of(std::string_view line);
  bool may_skip(std::string_view line);

  int write_fd() const { return write_end_ ? write_end_.get() : read_end_.get(); }

  Descriptor read_end_, write_end_;  // a socket is in the first only
  bool has_ended_ = false;
  bool skips_noise_ = false;
  size_t skipped_bytes_ = 0;
  std::string noise_;
  size_t max_line_ = size_t{16} << 20;
  std::string incoming_, outgoing_;
  std::string fault_ = "its connection ended";
  Seal sent_, received_;
  Clock::time_point last_heard_ = Clock::now();
};

/// Lets a TCP socket notice a lost network, and makes it non-blocking.
void prepare_socket(const Descriptor& socket);

/// Returns how long an end may be silent before it counts as lost. That is DS_LINK_TIMEOUT seconds, by
/// default 5. Throws UsageError for a value that is not a whole number from 2 to 86400.
std::chrono::seconds link_timeout();
inline constexpr const char* kLinkTimeoutVariable = "DS_LINK_TIMEOUT";
/// Sets how often an end sends the message Beat, which shows that it runs.
inline constexpr std::chrono::milliseconds kBeatInterval{1000};

}  // namespace deepspeed::launcher
