// Sends the first tensor of a list in parts, if the ranks that share a layer all have it. Each of them sends
// one part, and the receivers gather the parts.
#pragma once

#include <utility>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::pipe {

/// Cuts tensors into equal parts, one per rank of the slice group. The last part ends in padding. Without a
/// group, or with one rank, the tensor is the only part.
class SlicedMessage {
 public:
  SlicedMessage() = default;
  explicit SlicedMessage(comm::ProcessGroup slices) : slices_(std::move(slices)) {}

  bool is_cut() const { return slices_ && slices_.size() > 1; }
  /// Returns this rank's part of a tensor, (ceil(numel / slices)).
  at::Tensor part_of(const at::Tensor& whole) const;
  /// Allocates memory for all parts of a tensor like `whole`, (slices * ceil(numel / slices)).
  at::Tensor room_for(const at::Tensor& whole) const;
  /// Views that memory as the whole tensor, with the sizes of `like`.
  at::Tensor whole_of(const at::Tensor& room, const at::Tensor& like) const;
  /// Views this rank's part of the memory that room_for() allocated.
  at::Tensor own_place(const at::Tensor& room) const;
  /// Fills `room` with the other ranks' parts. Collective over the slice group.
  void gather(const at::Tensor& room) const;
  const comm::ProcessGroup& group() const { return slices_; }

 private:
  comm::ProcessGroup slices_;
};

}  // namespace deepspeed::pipe
