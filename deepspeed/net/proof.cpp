#include "deepspeed/net/proof.h"

#include <utility>

#include "deepspeed/base/hash.h"
#include "deepspeed/base/message.h"

namespace deepspeed::net {

std::string random_number() { return hex(random_bytes(16)); }

Prover::Prover(std::string secret, std::string purpose)
    : secret_(std::move(secret)), purpose_(std::move(purpose)) {}

std::string Prover::digest(const char* what, End end, const ProofNumbers& numbers) const {
  const char* const name = end == End::kServer ? "server" : "client";
  return hmac_sha256(secret_,
                     message(purpose_, " ", what, " ", name, ":", numbers.client, ":", numbers.server));
}

std::string Prover::proof(End end, const ProofNumbers& numbers) const {
  return hex(digest("proof", end, numbers));
}

bool Prover::is_proof(std::string_view text, End end, const ProofNumbers& numbers) const {
  return equal_in_constant_time(text, proof(end, numbers));
}

std::string Prover::key(End end, const ProofNumbers& numbers) const { return digest("key", end, numbers); }

}  // namespace deepspeed::net
