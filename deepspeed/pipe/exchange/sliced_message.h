// The first tensor of a list, which the ranks that share a layer hold alike, travels in parts: each of them
// sends one, and the receivers gather the parts.
#pragma once

#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::pipe {

/// Cuts tensors into equal parts, one a rank of the slice group; the last one ends in elements without
/// meaning. Without a group, or in a group of one, there is one part: the tensor.
class SlicedMessage {
 public:
  SlicedMessage() = default;
  explicit SlicedMessage(comm::ProcessGroup slices) : slices_(std::move(slices)) {}

  bool is_cut() const { return slices_ && slices_.size() > 1; }
  /// Returns this rank's part of a tensor, (ceil(numel / slices)).
  at::Tensor part_of(const at::Tensor& whole) const;
  /// Returns memory for the parts of a tensor like `whole`, (slices * ceil(numel / slices)).
  at::Tensor room_for(const at::Tensor& whole) const;
  /// Returns the tensor that lies there, with the sizes of `like`.
  at::Tensor whole_of(const at::Tensor& room, const at::Tensor& like) const;
  /// Returns this rank's place in such memory.
  at::Tensor own_place(const at::Tensor& room) const;
  /// Fills the other ranks' places. All ranks of the group call it.
  void gather(const at::Tensor& room) const;
  void give_up(const std::string& reason) const;

 private:
  comm::ProcessGroup slices_;
};

}  // namespace deepspeed::pipe
