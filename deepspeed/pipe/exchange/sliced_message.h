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
  /// Returns this rank's part of a tensor, of shape (ceil(numel / slices)), padded with zeros.
  at::Tensor part_of(const at::Tensor& whole) const;
  /// Allocates memory for all parts of a tensor like `whole`. Its shape is (slices * ceil(numel / slices)).
  at::Tensor room_for(const at::Tensor& whole) const;
  /// Views the memory of room_for() as the whole tensor, with the sizes of `like`.
  at::Tensor whole_of(const at::Tensor& room, const at::Tensor& like) const;
  /// Views this rank's part of the memory of room_for().
  at::Tensor own_place(const at::Tensor& room) const;
  /// Fills `room`, which holds this rank's part, with the other ranks' parts. Collective over the slice
  /// group.
  void gather(const at::Tensor& room) const;
  const comm::ProcessGroup& group() const { return slices_; }

 private:
  comm::ProcessGroup slices_;
};

}  // namespace deepspeed::pipe
