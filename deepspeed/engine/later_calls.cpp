#include "deepspeed/engine/later_calls.h"

#include "deepspeed/base/error.h"

namespace deepspeed {

void refuse_later_call(const char* call, const char* feature, const char* way_out) {
  raise<NotSupportedError>(call, "() comes with ", feature, ", which does not exist yet; until then, ",
                           way_out);
}

}  // namespace deepspeed
