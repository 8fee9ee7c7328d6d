// Files are written in the format of this DeepSpeed version.
#pragma once

namespace deepspeed::checkpoint {

inline constexpr const char* kDeepSpeedVersion = "0.19.6";

}  // namespace deepspeed::checkpoint
