// Base64, in which launchers pass a config or arguments within a command line.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "deepspeed/base/export.h"

namespace deepspeed::config {

/// Decodes `text` in an alphabet of RFC 4648: with '+' and '/', or '-' and '_'. The padding at the end may be
/// missing. Returns nothing for other characters or an impossible length.
DEEPSPEED_API std::optional<std::string> decode_base64(std::string_view text);

/// Encodes `bytes` in RFC 4648's alphabet for URLs ('-' and '_'), padded with '='.
DEEPSPEED_API std::string encode_base64(std::string_view bytes);

}  // namespace deepspeed::config
