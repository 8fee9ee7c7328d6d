#include "deepspeed/activation/keep/slot_buffers.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/empty.h>

#include "deepspeed/base/error.h"

namespace deepspeed::activation {
namespace {

bool is_free(const std::vector<bool>& used) {
  return std::find(used.begin(), used.end(), true) == used.end();
}

}  // namespace

SlotBuffers::Slot::Slot(std::shared_ptr<SlotBuffers> owner, std::shared_ptr<std::vector<bool>> used,
                        size_t index, at::Tensor tensor)
    : owner_(std::move(owner)), used_(std::move(used)), index_(index), tensor_(std::move(tensor)) {}

SlotBuffers::Slot::~Slot() {
  const std::lock_guard lock(owner_->mutex_);
  (*used_)[index_] = false;
}

SlotBuffers::Buffer& SlotBuffers::buffer_for(size_t place, const at::Tensor& flat) {
  const Key key{place, flat.numel(), flat.scalar_type(), flat.device().type(), flat.device().index()};
  const auto found = buffers_.find(key);
  if (found != buffers_.end()) return found->second;
  // The batches have a new shape, so buffers for the old one are freed.
  std::erase_if(buffers_, [&](const auto& entry) {
    return std::get<0>(entry.first) == place && is_free(*entry.second.used);
  });
  return buffers_[key] = {at::empty({slots_, flat.numel()}, flat.options()),
                          std::make_shared<std::vector<bool>>(slots_, false)};
}

std::unique_ptr<SlotBuffers::Slot> SlotBuffers::keep(const std::shared_ptr<SlotBuffers>& buffers,
                                                     size_t place, const at::Tensor& flat) {
  const std::lock_guard lock(buffers->mutex_);
  Buffer& buffer = buffers->buffer_for(place, flat);
  auto& used = *buffer.used;
  const auto free = std::find(used.begin(), used.end(), false);
  if (free == used.end()) {
    raise<UsageError>("contiguous_checkpointing: all ", buffers->slots_,
                      " slots wait for their backward; raise num_checkpoints to the number of regions in "
                      "forwards that are under way, or run backward");
  }
  const auto index = static_cast<size_t>(free - used.begin());
  at::Tensor slot = buffer.memory[static_cast<int64_t>(index)];
  slot.copy_(flat);
  used[index] = true;
  return std::make_unique<Slot>(buffers, buffer.used, index, std::move(slot));
}

void SlotBuffers::clear() {
  const std::lock_guard lock(mutex_);
  buffers_.clear();
}

}  // namespace deepspeed::activation
