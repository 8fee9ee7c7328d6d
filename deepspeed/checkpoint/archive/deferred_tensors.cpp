#include "deepspeed/checkpoint/archive/deferred_tensors.h"

#include <utility>

#include <ATen/ops/empty.h>

namespace deepspeed::checkpoint {
namespace {

const void* deferred_storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

}  // namespace

at::Tensor DeferredTensors::add(int64_t numel, at::ScalarType dtype, Source source) {
  at::Tensor tensor = at::empty({numel}, at::TensorOptions().dtype(dtype).device(at::kMeta));
  entries_->emplace(deferred_storage_of(tensor), Entry{tensor, std::move(source)});
  return tensor;
}

TensorStream DeferredTensors::stream() const {
  return [entries = entries_](const at::Tensor& deferred, const PieceSink& sink) {
    const int64_t begin = deferred.storage_offset();
    entries->at(deferred_storage_of(deferred)).source({begin, begin + deferred.numel()}, sink);
  };
}

}  // namespace deepspeed::checkpoint
