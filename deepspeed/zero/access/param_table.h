// Finds the parameters of a pool, their copies and units by the keys that traces have: pure bookkeeping.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "deepspeed/zero/access/gather_unit.h"
#include "deepspeed/zero/access/gatherable.h"

namespace deepspeed::zero {

/// Holds pointers to parameters, which the caller forgets before they go. Not thread-safe.
class ParamTable {
 public:
  /// Adds a parameter and gives it a key.
  void add(Gatherable& param);
  /// Adds a copy. Its key finds this copy from here on, and no earlier one.
  void add_copy(Gatherable& copy);
  /// Makes a unit of `members`, which are gathered in their order. name: for errors. Throws UsageError where
  /// a parameter would be in two places; then nothing has changed.
  const GatherUnit& join(std::string name, const std::vector<Gatherable*>& members);
  /// Removes a parameter or a copy that goes. A copy that lives longer still finds its parameter's unit.
  void forget(const Gatherable& param) noexcept;

  /// Returns how many parameters a key can have, at most.
  size_t num_params(uint64_t key) const;
  /// Returns the parameters of these keys, in order: all members of a unit; none for a copy not made yet.
  std::vector<Gatherable*> params_of(const std::vector<uint64_t>& keys) const;
  /// Returns the persistent parameters that are partitioned, in an order that all ranks have.
  std::vector<Gatherable*> missing_persistent() const;
  /// Frees the secondary parts of all parameters.
  void drop_secondary_parts();

  /// The unit of the latest use; null where that use was of no unit.
  GatherUnit* current() const { return current_; }
  bool is_in_current(const Gatherable& param) const { return current_ != nullptr && param.unit == current_; }
  /// Sets the unit of the latest use, null for none. Returns the one before.
  GatherUnit* set_current(GatherUnit* unit);

 private:
  const GatherUnit* find_unit(uint64_t key) const;

  uint64_t num_keys_ = 0;  // that parameters and units have got
  std::unordered_map<uint64_t, Gatherable*> by_key_;
  std::unordered_map<uint64_t, std::unique_ptr<GatherUnit>> units_;  // by key
  GatherUnit* current_ = nullptr;
};

}  // namespace deepspeed::zero
