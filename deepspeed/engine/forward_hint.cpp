#include <algorithm>
#include <string>

#include <c10/util/Exception.h>

#include "deepspeed/base/error.h"
#include "deepspeed/engine/assembly/zero_choices.h"
#include "deepspeed/engine/model/model.h"
#include "deepspeed/engine/training_engine.h"

namespace deepspeed {
namespace {

bool is_of_mixed_types(const std::string& text) {
  const auto has = [&](const char* part) { return text.find(part) != std::string::npos; };
  return has("mixed dtype (CPU)") || has("expected scalar type");
}

}  // namespace

void explain_forward_error(const TrainingEngine& engine, const c10::Error& error) {
  const at::ScalarType dtype = model_dtype(engine.config());
  if (dtype == at::kFloat) return;
  const EngineModel& model = engine.model();
  const auto other = std::ranges::find_if(model.buffers, [&](const NamedTensor& buffer) {
    return buffer.tensor.is_floating_point() && buffer.tensor.scalar_type() != dtype;
  });
  const std::string text = error.what_without_backtrace();
  if (other == model.buffers.end() || !is_of_mixed_types(text)) return;
  raise<UsageError>(
      "torch says: ", text, ". Buffer '", other->name, "' is ", other->tensor.scalar_type(),
      " and the parameters are ", dtype,
      ", which layers such as BatchNorm do not take on a CPU; set data_types.buffer_dtype to \"",
      dtype == at::kHalf ? "fp16" : "bf16", "\" in the config");
}

}  // namespace deepspeed
