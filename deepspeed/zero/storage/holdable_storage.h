// A storage whose whole data GatheredParameters can hold.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/zero/storage/storage_record.h"

namespace deepspeed::zero {

class HoldableStorage : public StorageRecord {
 public:
  /// Returns the parameter's number, from 0 on. It keeps the number while it is partitioned, even if it is
  /// partitioned again. Ranks that partition the same parameters in the same order give them the same
  /// numbers.
  int64_t id() const { return id_; }
  /// Takes over the id() of `param`, or a new one if `param` is not partitioned. Call it before arm().
  void take_id_of(const at::Tensor& param);

  /// Returns the name of the parameter.
  virtual const std::string& name() const = 0;
  /// Returns all ranks that have the parameter. It is partitioned over them, or over each of several subsets.
  virtual const comm::ProcessGroup& group() const = 0;
  /// Returns whether an operator has written the data since the latest writable hold(). Writes through a
  /// pointer are not seen.
  virtual bool was_written() const = 0;
  /// Makes the data whole until drop_hold(). Collective. writable: what operators write may be written back.
  /// Throws UsageError for a second writable hold.
  virtual void hold(bool writable) = 0;
  /// Notes that the held parameter got other memory without a writable hold. That write is lost.
  virtual void warn_of_lost_write() noexcept {}
  /// Gives all ranks of group() what rank `modifier_rank` wrote. The writable hold goes on. Collective.
  virtual void write_back(int modifier_rank) = 0;
  /// Turns other tensors over the storage of the held `param` into ordinary ones. They keep the present
  /// values when the hold ends. Does nothing inside a pass, whose graph gathers again what it has saved, nor
  /// while the model is built.
  virtual void leave_to_aliases(const at::Tensor& param) { static_cast<void>(param); }
  /// Ends a hold that was begun with `writable`. forget_writes: drops values, on this rank only, that were
  /// written and not written back. Values written without a writable hold are dropped too, except while the
  /// model is built.
  virtual void drop_hold(bool writable, bool forget_writes) noexcept = 0;

 private:
  int64_t id_ = -1;
};

}  // namespace deepspeed::zero
