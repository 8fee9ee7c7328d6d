// The version of DeepSpeed whose file format is written.
#pragma once

namespace deepspeed::checkpoint {

inline constexpr const char* kDeepSpeedVersion = "0.19.6";

}  // namespace deepspeed::checkpoint
