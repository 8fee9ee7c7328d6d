// Defines the messages between a process and the store of its job. Internal to this folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace deepspeed::comm {

/// Lists what a client can ask for. Each line gives the request's texts -> the reply's.
enum class StoreCall : uint8_t {
  kJoin,  // kStoreGreeting; number: the rank, or -1 for another client; limit_ms: the number of ranks. A
          // guarded store takes two calls: kStoreGreeting, the client's random number -> kProve; then
          // kStoreGreeting, the client's proof (store_guard.h)
  kSet,   // key, value
  kCompareSet,  // key, value before, value -> value
  kGet,         // key -> value, once it is set
  kAdd,         // key; number: what to add -> number
  kDelete,      // key -> number: 1 if it was set
  kCheck,       // keys -> number: 1 if all are set
  kCount,       // -> number
  kWait,        // keys
  kAppend,      // key, value
  kMultiGet,    // keys -> values, once all are set
  kMultiSet,    // key, value, key, value, ...
  kPush,        // key, value
  kPop,         // key -> value, once there is one; limit_ms -1: kEmpty if there is none
  kLength,      // key -> number
  kList,        // -> keys
};

/// Tells how a call ended.
enum class StoreAnswer : uint8_t {
  kDone,
  kTimeout,
  kEmpty,
  kRefused,  // a text gives the reason
  kProve,    // the server's random number and its proof (store_guard.h)
};

/// Holds a request or a reply.
struct StoreMessage {
  uint8_t kind = 0;      // a StoreCall or a StoreAnswer
  int64_t number = 0;    // depends on the kind
  int64_t limit_ms = 0;  // how long the call waits for its keys; 0: forever
  std::vector<std::string> texts;

  StoreCall call() const { return static_cast<StoreCall>(kind); }
  StoreAnswer answer() const { return static_cast<StoreAnswer>(kind); }
};

inline StoreMessage store_reply(StoreAnswer answer, int64_t number = 0, std::vector<std::string> texts = {}) {
  return {static_cast<uint8_t>(answer), number, 0, std::move(texts)};
}

/// Begins every conversation, to recognize servers and clients of this kind.
constexpr const char* kStoreGreeting = "deepspeed-cpp store 1";
/// Limits the size of a message in bytes; larger ones end the connection.
constexpr uint32_t kMaxStoreMessage = 64u << 20;

/// Returns the bytes to send, which start with the length of the rest (4 bytes). Throws CommError beyond
/// kMaxStoreMessage.
std::string encode_store_message(const StoreMessage& message);

/// Removes and returns the first message in `received`; nothing if it is incomplete. Throws CommError if the
/// bytes are not a message, or it is longer than max_bytes.
std::optional<StoreMessage> take_store_message(std::string& received, uint32_t max_bytes = kMaxStoreMessage);

}  // namespace deepspeed::comm
