// Lets both ends of a store's connection prove that they know the job's secret. Internal to this folder.
#pragma once

#include <optional>
#include <string>

#include "deepspeed/comm/store/store_message.h"
#include "deepspeed/net/proof.h"

namespace deepspeed::comm {

/// Names the variable with the job's secret, which the launcher of several machines sets.
inline constexpr const char* kStoreSecretVariable = "DEEPSPEED_STORE_SECRET";

/// Returns the secret that guards a store whose connection or listener is `socket`. It is "" if there is
/// none, or if the socket is only for this machine and user.
std::string store_secret(int socket);

/// Returns the prover of a store's connections.
net::Prover store_prover(const std::string& secret);

/// Implements the server's side of the greeting.
class StoreGuard {
 public:
  explicit StoreGuard(const std::string& secret) : prover_(store_prover(secret)) {}

  /// Returns nothing if the client may join. Otherwise returns the reply, which asks for the client's proof
  /// or reports that one end has no secret. Throws CommError for anything but a greeting, and for a wrong
  /// proof. `numbers` are the random numbers of this connection, empty at first.
  std::optional<StoreMessage> check(net::ProofNumbers& numbers, const StoreMessage& request) const;

 private:
  const net::Prover prover_;
};

}  // namespace deepspeed::comm
