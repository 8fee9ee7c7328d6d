// The TCP link between the launcher and programs whose runner provides no channel.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "deepspeed/launcher/link/carried_job.h"
#include "deepspeed/launcher/link/channel.h"
#include "deepspeed/launcher/link/messages.h"
#include "deepspeed/net/gate.h"
#include "deepspeed/net/proof.h"

namespace deepspeed::launcher {

/// Accepts connections from programs that know the job's secret. Each end proves its knowledge by an HMAC
/// over random numbers from both; the secret is never sent. Later lines are sealed with keys derived from
/// these numbers (Channel::seal).
///
/// A client that has given no proof may send only a few KiB. net::Gate decides when such a client is dropped.
class LinkListener {
 public:
  /// Listens at all addresses of this machine, at a port that the kernel chooses. Throws IoError if it cannot
  /// listen.
  explicit LinkListener(const std::string& secret);
  LinkListener(const LinkListener&) = delete;
  LinkListener& operator=(const LinkListener&) = delete;

  int port() const { return port_; }
  void append_poll_entries(std::vector<pollfd>& entries) const;

  struct Guest {
    Channel channel;
    Hello hello;
    std::string address;  ///< the other end's
  };
  /// Returns the programs that have proved the secret and said Hello since the last call.
  std::vector<Guest> accept();

 private:
  struct Candidate {
    Channel channel{Descriptor()};
    net::ProofNumbers numbers = {};
    std::string address = {};
    bool knows_secret = false;
  };
  void take_connections();
  void drop(uint64_t id);
  bool has_room() const;
  /// Continues the handshake. Returns the candidate's Hello once it has come. Closes the channel to drop the
  /// candidate.
  std::optional<Hello> advance(Candidate& candidate) const;

  const net::Prover prover_;
  Descriptor listener_;
  int port_ = 0;
  net::Gate gate_;
  std::map<uint64_t, Candidate> candidates_;  // by id, in order of arrival
  uint64_t next_id_ = 0;
};

/// Connects to the job's launcher and sends `hello`. It tries all addresses at once, because one may lead
/// nowhere, or to a silent process of another job. Throws IoError if none leads to a launcher that knows the
/// secret within `patience`, or if this process is abandoned.
Channel connect_to_launcher(const CarriedJob& job, const Hello& hello,
                            std::chrono::milliseconds patience = std::chrono::seconds(30));

}  // namespace deepspeed::launcher
