#include "deepspeed/ops/transformer/whole_tensors.h"

#include <cstdint>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace deepspeed::ops {
namespace {

using WholeFunction = std::function<void()>;

// The address of the function is an argument, since operators take no other C++ values.
void call_with_whole(at::TensorList, int64_t function) {
  // Casts inside are those of a kernel, which reads their results at once.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  (*reinterpret_cast<const WholeFunction*>(function))();
}

}  // namespace

void with_whole(at::TensorList tensors, const std::function<void()>& function) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("deepspeed::with_whole", "")
                             .typed<void(at::TensorList, int64_t)>();
  op.call(tensors, reinterpret_cast<int64_t>(&function));
}

}  // namespace deepspeed::ops

TORCH_LIBRARY_FRAGMENT(deepspeed, library) {
  library.def("with_whole(Tensor[] tensors, int function) -> ()", &deepspeed::ops::call_with_whole);
}
