// The version of the library that the program runs with, which may be a later patch than the one it was built
// against.
#pragma once

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Returns the version, such as "0.1.0". Releases with equal first two numbers can replace each other.
DEEPSPEED_API const char* version();

/// Returns the GPU architectures that the CUDA kernels were built for, such as "80-real 90-real"; "" where
/// the build has no CUDA.
DEEPSPEED_API const char* cuda_architectures();

/// Returns the file of the part that calls CUDA, which lies beside the library.
DEEPSPEED_API const char* cuda_library();

}  // namespace deepspeed
