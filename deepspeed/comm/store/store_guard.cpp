#include "deepspeed/comm/store/store_guard.h"

#include <utility>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"
#include "deepspeed/net/socket.h"

namespace deepspeed::comm {

std::string store_secret(int socket) {
  if (net::own_address(socket).is_local()) return "";
  return env::get(kStoreSecretVariable).value_or("");
}

net::Prover store_prover(const std::string& secret) { return {secret, "store"}; }

std::optional<StoreMessage> StoreGuard::check(net::ProofNumbers& numbers, const StoreMessage& request) const {
  const bool is_greeting = request.call() == StoreCall::kJoin && !request.texts.empty() &&
                           request.texts.size() <= 2 && request.texts[0] == kStoreGreeting;
  if (!is_greeting) raise<CommError>("the first message is not a rank's greeting");
  const bool client_has_secret = request.texts.size() == 2;
  if (client_has_secret != prover_.has_secret()) {
    const std::string text = message("rank 0 has ", prover_.has_secret() ? "a secret" : "no secret",
                                     ", this rank has ", prover_.has_secret() ? "none" : "one", "; set ",
                                     kStoreSecretVariable, " to the same value on all ranks");
    return store_reply(StoreAnswer::kRefused, 0, {text});
  }
  if (!prover_.has_secret()) return std::nullopt;
  if (numbers.server.empty()) {
    numbers = {request.texts[1], net::random_number()};
    return store_reply(StoreAnswer::kProve, 0, {numbers.server, prover_.proof(net::End::kServer, numbers)});
  }
  const net::ProofNumbers known = std::exchange(numbers, {});  // a proof is valid once
  if (!prover_.is_proof(request.texts[1], net::End::kClient, known))
    raise<CommError>("a rank does not know the job's secret");
  return std::nullopt;
}

}  // namespace deepspeed::comm
