// Lets both ends of a store's connection prove that they know the job's secret. Internal to this folder.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "deepspeed/comm/store/store_message.h"

namespace deepspeed::comm {

/// Names the variable with the job's secret, which the launcher of several machines sets.
inline constexpr const char* kStoreSecretVariable = "DEEPSPEED_STORE_SECRET";

/// Returns the secret that guards a store at the socket. It is "" if there is none, or if the socket is only
/// for this machine and user.
std::string store_secret(int socket);

/// Returns a random number of 32 digits.
std::string guard_number();

/// Returns the proof that an end, "server" or "client", knows the secret. It is HMAC-SHA-256 over both
/// numbers.
std::string guard_proof(const std::string& secret, const char* end, const std::string& client_number,
                        const std::string& server_number);

/// Implements the server's side of the greeting.
class StoreGuard {
 public:
  /// Holds what one client has shown.
  struct Shown {
    std::string client_number, server_number;
  };

  explicit StoreGuard(std::string secret) : secret_(std::move(secret)) {}

  /// Returns nothing if the client may join. Otherwise returns the reply, which asks for its proof or reports
  /// that one end has no secret. Throws CommError for anything but a greeting, and for a wrong proof.
  std::optional<StoreMessage> check(Shown& shown, const StoreMessage& request) const;

 private:
  const std::string secret_;
};

}  // namespace deepspeed::comm
