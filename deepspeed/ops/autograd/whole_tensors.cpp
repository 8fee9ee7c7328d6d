#include "deepspeed/ops/autograd/whole_tensors.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace deepspeed::ops {
namespace {

using WholeFunction = std::function<void()>;
using WholeOperator = c10::TypedOperatorHandle<void(at::TensorList, int64_t)>;

// The function is passed by its address, because operators take no C++ functions.
void call_with_whole(at::TensorList, int64_t function) {
  // Below autograd ZeRO computes casts at once (zero/storage/interception.cpp), as a kernel needs them.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  (*reinterpret_cast<const WholeFunction*>(function))();
}

/// Returns the operator of a name. The first call registers it.
WholeOperator whole_operator(const char* name) {
  static std::mutex mutex;
  // Never destroyed, because the dispatcher may be destroyed earlier.
  static auto& library =
      *new torch::Library(torch::Library::FRAGMENT, "deepspeed", std::nullopt, __FILE__, __LINE__);
  static auto& known = *new std::map<std::string, WholeOperator, std::less<>>();
  const std::lock_guard lock(mutex);
  const auto found = known.find(std::string_view(name));
  if (found != known.end()) return found->second;
  const std::string full = "deepspeed::" + std::string(name);
  library.def((full + "(Tensor[] tensors, int function) -> ()").c_str(), &call_with_whole);
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(full.c_str(), "");
  return known.emplace(name, op.typed<void(at::TensorList, int64_t)>()).first->second;
}

}  // namespace

void run_with_whole(const char* name, at::TensorList tensors, const WholeFunction& function) {
  whole_operator(name).call(tensors, reinterpret_cast<int64_t>(&function));
}

}  // namespace deepspeed::ops
