#include "deepspeed/zero/access/unit_table.h"

#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/zero/access/partitioned_storage.h"

namespace deepspeed::zero {

const GatherUnit& UnitTable::add(std::string name, uint64_t key,
                                 const std::vector<std::shared_ptr<PartitionedStorage>>& members) {
  auto unit = std::make_unique<GatherUnit>();
  unit->name = std::move(name);
  unit->index = by_key_.size() + 1;
  unit->key = key;
  std::unordered_map<const PartitionedStorage*, GatherUnit*> added;
  for (const auto& member : members) {
    const GatherUnit* const other = unit_of(*member);
    if (other != nullptr || !added.emplace(member.get(), unit.get()).second) {
      raise<UsageError>("parameter '", member->name(), "' is in ", (other ? *other : *unit).name, " and in ",
                        unit->name, "; one of them is to be a leaf");
    }
    unit->numel += member->numel();
    unit->members.push_back(member.get());
  }
  by_param_.merge(added);
  return *(by_key_[key] = std::move(unit));
}

GatherUnit* UnitTable::unit_of(const PartitionedStorage& param) const {
  const auto entry = by_param_.find(&param);
  return entry == by_param_.end() ? nullptr : entry->second;
}

const GatherUnit* UnitTable::find(uint64_t key) const {
  const auto entry = by_key_.find(key);
  return entry == by_key_.end() ? nullptr : entry->second.get();
}

GatherUnit* UnitTable::set_current(GatherUnit* unit) { return std::exchange(current_, unit); }

void UnitTable::remove_member(const PartitionedStorage& param) noexcept {
  if (GatherUnit* const unit = unit_of(param)) std::erase(unit->members, &param);
}

void UnitTable::forget(const PartitionedStorage& param) noexcept {
  remove_member(param);
  by_param_.erase(&param);
}

}  // namespace deepspeed::zero
