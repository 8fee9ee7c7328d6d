// The version of the library at run time, which may be a later patch than the one at build time.
#pragma once

#include "deepspeed/base/export.h"

namespace deepspeed {

/// Returns the version, such as "0.1.0". Releases with equal first two numbers can replace each other.
DEEPSPEED_API const char* version();

/// Returns the GPU architectures that the CUDA kernels were built for, such as "80-real 90-real". Returns ""
/// in a build without CUDA.
DEEPSPEED_API const char* cuda_architectures();

/// Returns the file of the library that calls CUDA, installed next to this one.
DEEPSPEED_API const char* cuda_library();

}  // namespace deepspeed
