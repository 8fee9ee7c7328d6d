#include "deepspeed/zero/storage/holdable_storage.h"

#include <atomic>
#include <memory>

namespace deepspeed::zero {

void HoldableStorage::take_id_of(const at::Tensor& param) {
  static std::atomic<int64_t> num_ids{0};
  const auto former = std::dynamic_pointer_cast<HoldableStorage>(record_of(param));
  id_ = former ? former->id() : num_ids++;
}

}  // namespace deepspeed::zero
