// The TCP link between the launcher and programs that a runner without a channel of its own starts.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "deepspeed/launcher/link/carried_job.h"
#include "deepspeed/launcher/link/channel.h"
#include "deepspeed/launcher/link/messages.h"

namespace deepspeed::launcher {

/// Takes connections from programs that know the job's secret. Both ends show that they do by an HMAC over
/// numbers that both have drawn; the secret itself is never sent, and strangers are dropped. What they say
/// then is sealed by keys of these numbers (Channel::seal).
///
/// A stranger may send some KiB, and stay for some seconds. Few of them are heard at a time: whoever comes
/// next waits, and takes the place of the one that has said nothing for longest.
class LinkListener {
 public:
  /// Listens at all addresses of this machine, at a port of the kernel's choice. Throws IoError.
  explicit LinkListener(std::string secret);
  LinkListener(const LinkListener&) = delete;
  LinkListener& operator=(const LinkListener&) = delete;

  int port() const { return port_; }
  void append_poll_entries(std::vector<pollfd>& entries) const;

  struct Guest {
    Channel channel;
    Hello hello;
    std::string address;  ///< of the other end
  };
  /// Returns the programs that have shown the secret and said Hello since the last call.
  std::vector<Guest> accept();

 private:
  struct Candidate {
    Channel channel;
    std::string number;  ///< drawn for this one
    std::string address;
    Channel::Clock::time_point since;
    bool knows_secret = false;
  };
  void take_connections();
  void drop_oldest();
  bool has_room() const;
  /// Returns the candidate's Hello once it has come; closes the channel to drop the candidate.
  std::optional<Hello> advance(Candidate& candidate) const;

  std::string secret_;
  Descriptor listener_;
  int port_ = 0;
  std::vector<Candidate> candidates_;
};

/// Connects to the job's launcher, whichever of its addresses leads there, and sends `hello`. All are tried
/// at once: one may lead nowhere, or to a stranger that is silent. Throws IoError where none leads to one
/// that knows the secret within `patience`.
Channel connect_to_launcher(const CarriedJob& job, const Hello& hello,
                            std::chrono::milliseconds patience = std::chrono::seconds(30));

}  // namespace deepspeed::launcher
