// How the two ends of a store's connection show each other that they know the secret of the job. Internal to
// this folder.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "deepspeed/comm/store/store_message.h"

namespace deepspeed::comm {

/// Names the variable with the job's secret, which the launcher of several machines sets.
inline constexpr const char* kStoreSecretVariable = "DEEPSPEED_STORE_SECRET";

/// Returns the secret that guards a store at the socket; "" where it has none, or is of this machine and user
/// alone.
std::string store_secret(int socket);

/// Returns a number of 32 digits that nobody knows beforehand.
std::string guard_number();

/// Returns what shows that an end, "server" or "client", knows the secret: HMAC-SHA-256 over both numbers.
std::string guard_proof(const std::string& secret, const char* end, const std::string& client_number,
                        const std::string& server_number);

/// The server's side of the greeting.
class StoreGuard {
 public:
  /// What one client has shown.
  struct Shown {
    std::string client_number, server_number;
  };

  explicit StoreGuard(std::string secret) : secret_(std::move(secret)) {}

  /// Returns nothing where the client may join, else the reply that asks for its proof, or tells it that one
  /// of both has no secret. Throws CommError for what is no greeting, or a wrong proof.
  std::optional<StoreMessage> check(Shown& shown, const StoreMessage& request) const;

 private:
  const std::string secret_;
};

}  // namespace deepspeed::comm
