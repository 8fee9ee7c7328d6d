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
  /// The number of the parameter, from 0 on, which it keeps while it is partitioned, whoever partitions it
  /// anew. Ranks that partition the same parameters in the same order give them the same numbers.
  int64_t id() const { return id_; }
  /// Takes over the number of `param`, or a new one where it is not partitioned yet; before arm().
  void take_id_of(const at::Tensor& param);

  /// The name of the parameter.
  virtual const std::string& name() const = 0;
  /// All ranks that have the parameter: it is partitioned over them, or over several parts of them each.
  virtual const comm::ProcessGroup& group() const = 0;
  /// Whether an operator has written the data since the latest writable hold(); writes through a pointer are
  /// not seen.
  virtual bool was_written() const = 0;
  /// Makes the data whole until drop_hold(); collective. writable: what operators write may be written back.
  /// Throws UsageError for a second writable hold.
  virtual void hold(bool writable) = 0;
  /// Says that this rank gave the held parameter other memory without a writable hold, which is lost.
  virtual void warn_of_lost_write() noexcept {}
  /// Ends a writable hold: rank `modifier_rank`'s values become those of all ranks; collective.
  virtual void write_back(int modifier_rank) = 0;
  /// Makes other tensors over the storage of the held `param` ordinary ones, which keep its present values
  /// when the hold ends. Does nothing inside of a pass, whose graph gathers again what it has saved, nor
  /// while the model is built.
  virtual void leave_to_aliases(const at::Tensor& param) { static_cast<void>(param); }
  /// Ends a hold, which was begun as `writable` says. forget_writes: values that were written and not written
  /// back are dropped, on this rank alone, as those always are that were written without a writable hold.
  virtual void drop_hold(bool writable, bool forget_writes) noexcept = 0;

 private:
  int64_t id_ = -1;
};

}  // namespace deepspeed::zero
