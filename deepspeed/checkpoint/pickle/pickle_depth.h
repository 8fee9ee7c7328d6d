// Values in a pickle lie inside of each other; this bounds how deep, for the writer and for the reader.
#pragma once

namespace deepspeed::checkpoint {

/// Is the deepest nesting that is written and read.
inline constexpr int kMaxPickleDepth = 200;

}  // namespace deepspeed::checkpoint
