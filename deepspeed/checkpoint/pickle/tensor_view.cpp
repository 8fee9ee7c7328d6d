#include "deepspeed/checkpoint/pickle/tensor_view.h"

#include <ATen/ops/empty.h>

#include "deepspeed/base/error.h"

namespace deepspeed::checkpoint {
namespace {

constexpr size_t kMaxDims = 64;
constexpr int64_t kMaxRepeatedNumel = int64_t{1} << 31;

[[noreturn]] void raise_outside() {
  raise<CheckpointError>("a tensor reaches beyond its storage, or has impossible sizes");
}

}  // namespace

at::Tensor view_of_storage(const at::Storage& storage, const TensorView& view) {
  const int64_t capacity = int64_t(storage.nbytes() / c10::elementSize(view.type));
  if (view.sizes.size() != view.strides.size() || view.sizes.size() > kMaxDims || view.offset < 0 ||
      view.offset > capacity) {
    raise_outside();
  }
  int64_t numel = 1;
  int64_t last = view.offset;  // the largest index in the view
  bool is_empty = false;
  for (size_t dim = 0; dim < view.sizes.size(); ++dim) {
    int64_t reach = 0;
    if (view.sizes[dim] < 0 || view.strides[dim] < 0) raise_outside();
    if (view.sizes[dim] == 0) {
      is_empty = true;
      continue;
    }
    if (__builtin_mul_overflow(numel, view.sizes[dim], &numel) ||
        __builtin_mul_overflow(view.sizes[dim] - 1, view.strides[dim], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      raise_outside();
    }
  }
  if (!is_empty && last >= capacity) raise_outside();
  // With repeated elements (stride 0), a small file could demand any amount of memory at the first copy.
  if (!is_empty && numel > capacity && numel > kMaxRepeatedNumel) raise_outside();
  return at::empty({0}, at::TensorOptions().dtype(view.type).device(storage.device()))
      .set_(storage, view.offset, view.sizes, view.strides);
}

}  // namespace deepspeed::checkpoint
