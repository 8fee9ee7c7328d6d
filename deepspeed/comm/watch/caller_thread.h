// This function numbers the threads of the process that call collectives. Internal to this folder.
#pragma once

#include <cstdint>

namespace deepspeed::comm {

/// Returns the calling thread's number, from 1 on; no other thread of the process ever has it.
int64_t caller_thread();

}  // namespace deepspeed::comm
