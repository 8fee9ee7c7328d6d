#include "deepspeed/comm/store/store_guard.h"

#include <sys/socket.h>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/hash.h"
#include "deepspeed/base/message.h"

namespace deepspeed::comm {

std::string store_secret(int socket) {
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length);
  if (own.ss_family == AF_UNIX) return "";
  return env::get(kStoreSecretVariable).value_or("");
}

std::string guard_number() { return hex(random_bytes(16)); }

std::string guard_proof(const std::string& secret, const char* end, const std::string& client_number,
                        const std::string& server_number) {
  return hex(hmac_sha256(secret, "store " + std::string(end) + ":" + client_number + ":" + server_number));
}

std::optional<StoreMessage> StoreGuard::check(Shown& shown, const StoreMessage& request) const {
  const bool is_greeting = request.call() == StoreCall::kJoin && !request.texts.empty() &&
                           request.texts.size() <= 2 && request.texts[0] == kStoreGreeting;
  if (!is_greeting) raise<CommError>("what comes is no greeting of a rank");
  const bool client_has_secret = request.texts.size() == 2;
  if (client_has_secret == secret_.empty()) {
    const std::string text =
        message("rank 0 has ", secret_.empty() ? "no secret" : "a secret", ", this rank has ",
                secret_.empty() ? "one" : "none", "; set ", kStoreSecretVariable, " alike for all ranks");
    return store_reply(StoreAnswer::kRefused, 0, {text});
  }
  if (secret_.empty()) return std::nullopt;
  if (shown.server_number.empty()) {
    shown = {request.texts[1], guard_number()};
    const auto proof = guard_proof(secret_, "server", shown.client_number, shown.server_number);
    return store_reply(StoreAnswer::kProve, 0, {shown.server_number, proof});
  }
  const Shown numbers = std::exchange(shown, {});  // a proof is valid once
  if (!equal_in_constant_time(request.texts[1],
                              guard_proof(secret_, "client", numbers.client_number, numbers.server_number)))
    raise<CommError>("a rank does not know the job's secret");
  return std::nullopt;
}

}  // namespace deepspeed::comm
