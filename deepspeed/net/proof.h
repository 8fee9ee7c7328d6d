// Proves to the other end of a connection that this one knows the job's secret, without sending it.
#pragma once

#include <string>
#include <string_view>

#include "deepspeed/base/export.h"

namespace deepspeed::net {

/// Names an end of a connection.
enum class End { kServer, kClient };

/// Holds the random numbers that both ends chose for one connection. A proof is valid only for these.
struct ProofNumbers {
  std::string client, server;
};

/// Returns a random number of 128 bits as 32 hexadecimal digits.
DEEPSPEED_API std::string random_number();

/// Makes and checks proofs with a secret. They are HMAC-SHA-256 over the purpose, the end and both numbers,
/// so a proof is of no use in another connection, for the other end, or for another purpose.
class DEEPSPEED_API Prover {
 public:
  /// purpose: a word for the kind of connection.
  Prover(std::string secret, std::string purpose);

  bool has_secret() const { return !secret_.empty(); }
  /// Returns the proof that `end` sends to the other end.
  std::string proof(End end, const ProofNumbers& numbers) const;
  /// Returns whether the text is the proof of that end. Takes equally long for every wrong text.
  bool is_proof(std::string_view text, End end, const ProofNumbers& numbers) const;
  /// Returns the key that authenticates what `end` sends later, as raw bytes.
  std::string key(End end, const ProofNumbers& numbers) const;

 private:
  std::string digest(const char* what, End end, const ProofNumbers& numbers) const;

  std::string secret_, purpose_;
};

}  // namespace deepspeed::net
