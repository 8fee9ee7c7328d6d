#include "deepspeed/comm/store/store_message.h"

#include <cstring>

#include "deepspeed/base/error.h"

namespace deepspeed::comm {
namespace {

template <class Number>
void append_number(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

// Reads from the bytes and never past their end.
class MessageReader {
 public:
  explicit MessageReader(std::string_view bytes) : bytes_(bytes) {}

  template <class Number>
  Number number() {
    Number result;
    const auto part = take(sizeof(result));
    std::memcpy(&result, part.data(), sizeof(result));
    return result;
  }
  std::string text() { return std::string(take(number<uint32_t>())); }
  size_t size() const { return bytes_.size(); }

 private:
  std::string_view take(size_t size) {
    if (size > bytes_.size()) raise<CommError>("a message of the store ends early");
    const auto part = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return part;
  }

  std::string_view bytes_;
};

StoreMessage decode(std::string_view bytes) {
  MessageReader reader(bytes);
  StoreMessage message;
  message.kind = reader.number<uint8_t>();
  message.number = reader.number<int64_t>();
  message.limit_ms = reader.number<int64_t>();
  const auto count = reader.number<uint32_t>();
  if (count > reader.size() / sizeof(uint32_t))
    raise<CommError>("a message of the store has ", count, " texts in ", reader.size(), " bytes");
  message.texts.reserve(count);
  for (uint32_t i = 0; i < count; ++i) message.texts.push_back(reader.text());
  if (reader.size() != 0) raise<CommError>("a message of the store has ", reader.size(), " bytes too many");
  return message;
}

}  // namespace

std::string encode_store_message(const StoreMessage& message) {
  size_t length = 1 + 2 * sizeof(int64_t) + sizeof(uint32_t);
  for (const auto& text : message.texts) length += sizeof(uint32_t) + text.size();
  if (length > kMaxStoreMessage)
    raise<CommError>("a call of the store has ", length, " bytes, expected ", kMaxStoreMessage,
                     " at most; send what is larger by a collective");
  std::string bytes;
  bytes.reserve(sizeof(uint32_t) + length);
  append_number(bytes, static_cast<uint32_t>(length));
  append_number(bytes, message.kind);
  append_number(bytes, message.number);
  append_number(bytes, message.limit_ms);
  append_number(bytes, static_cast<uint32_t>(message.texts.size()));
  for (const auto& text : message.texts) {
    append_number(bytes, static_cast<uint32_t>(text.size()));
    bytes += text;
  }
  return bytes;
}

std::optional<StoreMessage> take_store_message(std::string& received, uint32_t max_bytes) {
  uint32_t length = 0;
  if (received.size() < sizeof(length)) return std::nullopt;
  std::memcpy(&length, received.data(), sizeof(length));
  if (length > max_bytes)
    raise<CommError>("a message of the store has ", length, " bytes, expected ", max_bytes, " at most");
  if (received.size() < sizeof(length) + length) return std::nullopt;
  auto message = decode(std::string_view(received).substr(sizeof(length), length));
  received.erase(0, sizeof(length) + length);
  return message;
}

}  // namespace deepspeed::comm
