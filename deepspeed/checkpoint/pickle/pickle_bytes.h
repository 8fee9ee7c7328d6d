// Reads the bytes of a pickle from front to back, never past their end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "deepspeed/base/error.h"

namespace deepspeed::checkpoint {

/// Reads bytes in order and remembers the position. All members throw CheckpointError if the bytes end too
/// soon.
class PickleBytes {
 public:
  explicit PickleBytes(std::string_view bytes) : bytes_(bytes) {}

  size_t size() const { return bytes_.size(); }
  size_t position() const { return position_; }

  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - position_) raise<CheckpointError>("the pickle is torn at byte ", position_);
    const std::string_view part = bytes_.substr(position_, size);
    position_ += size;
    return part;
  }
  template <class T>
  T number() {
    uint64_t value = 0;
    const std::string_view part = take(sizeof(T));
    for (size_t index = 0; index < sizeof(T); ++index) value |= uint64_t(uint8_t(part[index])) << (8 * index);
    return T(value);
  }
  std::string line() {
    const size_t end = bytes_.find('\n', position_);
    if (end == std::string_view::npos) raise<CheckpointError>("the pickle is torn in a name");
    std::string text(take(end - position_));
    take(1);
    return text;
  }

 private:
  std::string_view bytes_;
  size_t position_ = 0;
};

}  // namespace deepspeed::checkpoint
