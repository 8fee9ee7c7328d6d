#include "deepspeed/engine/forward_hint.h"

#include <string>

#include "deepspeed/base/error.h"

namespace deepspeed {

void explain_forward_error(const c10::Error& error, const config::DeepSpeedConfig& config) {
  const std::string text = error.what_without_backtrace();
  const bool is_cast = config.bf16.enabled || config.fp16.enabled;
  if (!is_cast || config.data_types.buffer_dtype || text.find("mixed dtype (CPU)") == std::string::npos)
    return;
  const char* const dtype = config.bf16.enabled ? "bf16" : "fp16";
  raise<UsageError>("engine.forward", "torch says: ", text,
                    ". A layer that has buffers, such as BatchNorm, got "
                    "parameters in ",
                    dtype,
                    " and buffers in another type, which torch does not take on a CPU; set "
                    "data_types.buffer_dtype to \"",
                    dtype, "\" in the config");
}

}  // namespace deepspeed
