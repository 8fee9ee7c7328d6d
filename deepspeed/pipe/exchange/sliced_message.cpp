#include "deepspeed/pipe/exchange/sliced_message.h"

#include <algorithm>

#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>

namespace deepspeed::pipe {
namespace {

int64_t part_size(int64_t numel, int slices) { return (numel + slices - 1) / slices; }

}  // namespace

at::Tensor SlicedMessage::part_of(const at::Tensor& whole) const {
  const at::Tensor flat = whole.reshape({-1});
  const int64_t part = part_size(flat.numel(), slices_.size());
  const int64_t begin = std::min(slices_.rank() * part, flat.numel());
  const int64_t count = std::min(part, flat.numel() - begin);
  const at::Tensor own = flat.narrow(0, begin, count);
  return count == part ? own : at::constant_pad_nd(own, {0, part - count});
}

at::Tensor SlicedMessage::room_for(const at::Tensor& whole) const {
  return at::empty({slices_.size() * part_size(whole.numel(), slices_.size())}, whole.options());
}

at::Tensor SlicedMessage::own_place(const at::Tensor& room) const {
  const int64_t part = room.numel() / slices_.size();
  return room.narrow(0, slices_.rank() * part, part);
}

at::Tensor SlicedMessage::whole_of(const at::Tensor& room, const at::Tensor& like) const {
  return room.narrow(0, 0, like.numel()).view(like.sizes());
}

void SlicedMessage::gather(const at::Tensor& room) const {
  slices_.all_gather(room.view(at::kByte), own_place(room).view(at::kByte));
}

}  // namespace deepspeed::pipe
