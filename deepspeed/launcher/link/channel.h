// One end of the link between the launcher and the program of a machine: messages over descriptors.
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

/// Sends and takes messages (messages.h), one line of JSON each, without ever waiting for the other end. What
/// has come is kept until it is taken; what cannot be sent at once is kept until it can. A line that is
/// longer than the limit, at first 16 MiB, or is no message closes the channel.
class Channel {
 public:
  using Clock = std::chrono::steady_clock;

  /// Reads from one end of a pipe, and writes to that of another one.
  Channel(Descriptor read_end, Descriptor write_end);
  explicit Channel(Descriptor socket) : Channel(std::move(socket), Descriptor()) {}

  void send(const Json& message);
  template <Message Kind>
  void send(Kind message) {
    send(to_json(std::move(message)));
  }

  /// Sets the limit of a line that comes, in bytes.
  void limit_lines(size_t bytes) { max_line_ = bytes; }

  /// From now on each line bears an HMAC over its number and its text, by the key of its direction: a line
  /// that is foreign, was changed, left out or sent again closes the channel.
  void seal(std::string sending_key, std::string receiving_key);

  /// Skips lines that are no message, until the first one comes: a shell's own files may print something at
  /// its start. Many of them close the channel.
  void skip_noise() { skips_noise_ = true; }
  /// Returns the beginning of what was skipped.
  const std::string& noise() const { return noise_; }

  /// Adds what poll() is to wait for.
  void append_poll_entries(std::vector<pollfd>& entries) const;

  /// Reads and writes what goes without waiting; returns the messages that have come. An end that sends
  /// without pause is read in parts.
  std::vector<Json> exchange();

  /// Whether the other end is gone; what it had sent before was taken.
  bool is_closed() const { return !read_end_; }
  /// Closes the channel. `fault` says what was wrong with the other end.
  void close(const std::string& fault = "");
  /// Says why the channel is closed: the other end has gone, or has sent something wrong.
  const std::string& fault() const { return fault_; }
  /// Returns the bytes that wait to be sent.
  size_t pending_bytes() const { return outgoing_.size(); }
  /// Returns how long nothing has come.
  Clock::duration silence() const { return Clock::now() - last_heard_; }
  /// Counts silence anew from now on.
  void forget_silence() { last_heard_ = Clock::now(); }

 private:
  /// The seals of one direction.
  struct Seal {
    std::string key;
    uint64_t count = 0;
    std::string of_next(std::string_view line);
  };
  void write_some();
  /// Returns whether the other end has more to read at once.
  bool read_some();
  /// Returns nothing for a line that is no message.
  std::optional<Json> message_of(std::string_view line);
  bool may_skip(std::string_view line);

  int write_fd() const { return write_end_ ? write_end_.get() : read_end_.get(); }

  Descriptor read_end_, write_end_;  // a socket is only the first
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

/// Sets the limits by which a TCP socket notices a lost network, and makes it not block.
void prepare_socket(const Descriptor& socket);

/// How long an end may be silent before it counts as lost: DS_LINK_TIMEOUT seconds, else 5. Throws UsageError
/// for a value that is no whole number of at least 2.
std::chrono::seconds link_timeout();
inline constexpr const char* kLinkTimeoutVariable = "DS_LINK_TIMEOUT";
/// The time between the messages by which an end shows that it lives.
inline constexpr std::chrono::milliseconds kBeatInterval{1000};

}  // namespace deepspeed::launcher
