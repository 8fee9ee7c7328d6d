// What a process and the store of its job say to each other. Internal to this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace deepspeed::comm {

/// Says what a client asks for. Beside each: its texts, and what the reply holds.
enum class StoreCall : uint8_t {
  kJoin,  // kStoreGreeting; number: the rank, or -1 for a further client; limit_ms: the ranks of the job. At
          // a guarded store first with the client's number -> kProve, then with its proof
  kSet,   // key, value
  kCompareSet,  // key, value before, value -> value
  kGet,         // key -> value, once it is there
  kAdd,         // key; number: what to add -> number
  kDelete,      // key -> number: 1 where it was there
  kCheck,       // keys -> number: 1 where all are there
  kCount,       // -> number
  kWait,        // keys
  kAppend,      // key, value
  kMultiGet,    // keys -> values, once all are there
  kMultiSet,    // key, value, key, value, ...
  kPush,        // key, value
  kPop,         // key -> value, once there is one; limit_ms -1: or kEmpty
  kLength,      // key -> number
  kList,        // -> keys
};

/// Says how a call ended.
enum class StoreAnswer : uint8_t {
  kDone,
  kTimeout,
  kEmpty,
  kRefused,  // a text says why
  kProve,    // the server's number and its proof (store_guard.h)
};

/// Is a request or a reply.
struct StoreMessage {
  uint8_t kind = 0;      // a StoreCall or a StoreAnswer
  int64_t number = 0;    // as the kind says
  int64_t limit_ms = 0;  // how long the call waits for its keys; 0: without an end
  std::vector<std::string> texts;

  StoreCall call() const { return static_cast<StoreCall>(kind); }
  StoreAnswer answer() const { return static_cast<StoreAnswer>(kind); }
};

inline StoreMessage store_reply(StoreAnswer answer, int64_t number = 0, std::vector<std::string> texts = {}) {
  return {static_cast<uint8_t>(answer), number, 0, std::move(texts)};
}

/// Opens every conversation, so that other servers and clients are told from these.
constexpr const char* kStoreGreeting = "deepspeed-cpp store 1";
/// Messages of more bytes end the connection.
constexpr uint32_t kMaxStoreMessage = 64u << 20;

/// Returns the bytes to send, which begin with their number (4 bytes).
std::string encode_store_message(const StoreMessage& message);

/// Takes the first message off `received`; nothing where it is not whole yet. Throws CommError where the
/// bytes are no message, or it is longer than max_bytes.
std::optional<StoreMessage> take_store_message(std::string& received, uint32_t max_bytes = kMaxStoreMessage);

}  // namespace deepspeed::comm
