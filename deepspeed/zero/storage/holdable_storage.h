// A storage whose whole data GatheredParameters can hold.
#pragma once

#include <string>

#include "deepspeed/comm/group/process_group.h"
#include "deepspeed/zero/storage/storage_record.h"

namespace deepspeed::zero {

class HoldableStorage : public StorageRecord {
 public:
  /// Of the parameter.
  virtual const std::string& name() const = 0;
  /// Over which it is partitioned.
  virtual const comm::ProcessGroup& group() const = 0;
  /// Whether an operator has written it since hold(); what goes through a pointer is not seen.
  virtual bool was_written() const = 0;
  /// Its data is whole until drop_hold(); collective. Writing it is legal where `writable` says so. Throws
  /// UsageError where somebody else may write it.
  virtual void hold(bool writable) = 0;
  /// At the end of a writable hold: rank `modifier_rank`'s values become those of all ranks; collective.
  virtual void write_back(int modifier_rank) = 0;
  /// forget_writes: what was written and not written back goes, on this rank alone.
  virtual void drop_hold(bool forget_writes) noexcept = 0;
};

}  // namespace deepspeed::zero
