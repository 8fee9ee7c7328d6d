#include "deepspeed/base/version.h"

namespace deepspeed {

const char* version() { return DEEPSPEED_VERSION; }

}  // namespace deepspeed
