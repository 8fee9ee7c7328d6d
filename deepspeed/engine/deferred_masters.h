// Masters for the files of a checkpoint, which hold them in fp32, where the optimizer keeps another form of
// them: they are made piece by piece while they are written, and take no memory of their size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "deepspeed/base/interval.h"
#include "deepspeed/checkpoint/torch_archive.h"
#include "deepspeed/zero/zero_optimizer.h"

namespace deepspeed {

class DeferredMasters {
 public:
  /// `optimizer` must outlive what stream() returns.
  explicit DeferredMasters(zero::ZeroOptimizer& optimizer) : optimizer_(optimizer) {}

  /// Masters and states of a part of what this rank owns of the group. The master is fp32, or stands on the
  /// meta device for one that stream() gives. Throws as ZeroOptimizer::state() does.
  zero::GroupState read(size_t group, const Interval& part);
  /// Of the masters that were read on the meta device, and views of them; they must not change until then.
  checkpoint::TensorStream stream() const;

 private:
  struct Place {
    at::Tensor stand_in;  // holds the storage that names it
    size_t group = 0;
    int64_t begin = 0;
  };
  using Places = std::unordered_map<const void*, Place>;  // by storage

  zero::ZeroOptimizer& optimizer_;
  std::shared_ptr<Places> places_ = std::make_shared<Places>();
};

}  // namespace deepspeed
