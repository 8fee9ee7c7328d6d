// Knows which partitioned parameters are gathered as one unit, and at which unit a pass is: pure bookkeeping.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "deepspeed/zero/access/gather_unit.h"

namespace deepspeed::zero {

/// Holds pointers to the storages of parameters, which the caller forgets before they go. A copy of a
/// parameter is in no unit itself: the caller asks for the parameter's. Not thread-safe.
class UnitTable {
 public:
  /// Makes a unit of `members`, whose order is that of their gathers. name: for errors; key: the unit's own
  /// in traces. Units count from 1 on. Throws UsageError where a parameter would be in two places; then
  /// nothing has changed.
  const GatherUnit& add(std::string name, uint64_t key,
                        const std::vector<std::shared_ptr<PartitionedStorage>>& members);

  /// Returns the unit of a parameter; null where it is gathered by itself.
  GatherUnit* unit_of(const PartitionedStorage& param) const;
  /// Returns the unit that traces call `key`; null where no unit has it.
  const GatherUnit* find(uint64_t key) const;

  /// Returns the unit that the latest use was of; null where that was of no unit.
  GatherUnit* current() const { return current_; }
  bool is_in_current(const PartitionedStorage& param) const {
    return current_ != nullptr && unit_of(param) == current_;
  }
  /// Notes that the next use is of `unit`, or of none where it is null. Returns the one that was current.
  GatherUnit* set_current(GatherUnit* unit);

  /// Ends the gathers of a parameter with its unit. The copies that live of it are the unit's still.
  void remove_member(const PartitionedStorage& param) noexcept;
  /// Forgets a parameter, of which no copy lives.
  void forget(const PartitionedStorage& param) noexcept;

 private:
  std::unordered_map<uint64_t, std::unique_ptr<GatherUnit>> by_key_;
  std::unordered_map<const PartitionedStorage*, GatherUnit*> by_param_;
  GatherUnit* current_ = nullptr;
};

}  // namespace deepspeed::zero
