#include "deepspeed/base/version.h"

namespace deepspeed {

const char* version() { return DEEPSPEED_VERSION; }
const char* cuda_architectures() { return DEEPSPEED_CUDA_ARCHITECTURES; }
const char* cuda_library() { return DEEPSPEED_CUDA_LIBRARY; }

}  // namespace deepspeed
