// Finds a pool's parameters, copies and units by their keys in traces: pure bookkeeping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "deepspeed/zero/access/gatherable.h"

namespace deepspeed::zero {

/// Holds parameters that are gathered as one: those of a leaf module of stage 3, such as a block of experts.
/// Operators may use different members on each rank. All ranks use the unit as a whole at the same time.
struct GatherUnit {
  std::string name;  // "leaf module 'h.0.experts'"
  size_t index = 0;  // numbers the units of a pool, from 1 on
  uint64_t key = 0;  // in traces
  int64_t numel = 0;
  std::vector<Gatherable*> members;             // existing members, in the same order on all ranks
  std::unordered_set<Gatherable*> live_copies;  // copies of members that are whole or being gathered
};

/// Finds parameters, copies and units by key. The table holds pointers: call forget() before destroying a
/// parameter. It is not thread-safe.
class ParamTable {
 public:
  /// Adds a parameter and gives it a key.
  void add(Gatherable& param);
  /// Adds a copy. Its key then finds `copy` instead of an earlier one.
  void add_copy(Gatherable& copy);
  /// Makes a unit of `members`, which are gathered in their order. name: for errors. Throws UsageError and
  /// changes nothing if a parameter would be in two units.
  const GatherUnit& join(std::string name, const std::vector<Gatherable*>& members);
  /// Removes a destroyed parameter or copy. A copy that outlives its parameter still finds that parameter's
  /// unit.
  void forget(const Gatherable& param) noexcept;

  /// Returns the most parameters that params_of() can return for the key.
  size_t num_params(uint64_t key) const;
  /// Returns the parameters of these keys in order. A unit's key gives all its members. The key of a copy
  /// that is not made yet gives nothing.
  std::vector<Gatherable*> params_of(const std::vector<uint64_t>& keys) const;
  /// Returns the persistent parameters that are not whole, in an order common to all ranks.
  std::vector<Gatherable*> missing_persistent() const;
  /// Frees the secondary parts of all parameters.
  void drop_secondary_parts();

  /// Returns the unit of the last used parameter; null if that is in no unit.
  GatherUnit* current() const { return current_; }
  bool is_in_current(const Gatherable& param) const { return current_ != nullptr && param.unit == current_; }
  /// Sets the unit of the latest use, or null. Returns the former one.
  GatherUnit* set_current(GatherUnit* unit);

 private:
  const GatherUnit* find_unit(uint64_t key) const;

  uint64_t num_keys_ = 0;  // number of keys given to parameters and units
  std::unordered_map<uint64_t, Gatherable*> by_key_;
  std::unordered_map<uint64_t, std::unique_ptr<GatherUnit>> units_;  // by key
  GatherUnit* current_ = nullptr;
};

}  // namespace deepspeed::zero
