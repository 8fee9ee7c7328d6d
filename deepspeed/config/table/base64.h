// Base64, in which launchers hand a config or arguments on within a command line.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "deepspeed/base/export.h"

namespace deepspeed::config {

/// Decodes `text`, in the alphabet of RFC 4648 with either '+' and '/' or '-' and '_'; the padding at the end
/// may be left out. Nothing where the text has other characters or a length that no bytes have.
DEEPSPEED_API std::optional<std::string> decode_base64(std::string_view text);

/// Encodes `bytes` in the alphabet of RFC 4648 that URLs take ('-' and '_'), padded with '='.
DEEPSPEED_API std::string encode_base64(std::string_view bytes);

}  // namespace deepspeed::config
