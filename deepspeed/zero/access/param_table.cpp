#include "deepspeed/zero/access/param_table.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "deepspeed/base/error.h"

namespace deepspeed::zero {

void ParamTable::add(Gatherable& param) {
  param.key = ++num_keys_ * Gatherable::kKeysPerParam;
  by_key_[param.key] = &param;
}

void ParamTable::add_copy(Gatherable& copy) { by_key_[copy.key] = &copy; }

const GatherUnit& ParamTable::join(std::string name, const std::vector<Gatherable*>& members) {
  std::unordered_set<const Gatherable*> seen;
  for (const Gatherable* const member : members) {
    if (member->unit == nullptr && seen.insert(member).second) continue;
    raise<UsageError>("parameter '", member->name, "' is in ", member->unit ? member->unit->name : name,
                      " and in ", name, "; one of them must be a leaf");
  }
  auto unit = std::make_unique<GatherUnit>();
  unit->name = std::move(name);
  unit->index = units_.size() + 1;
  unit->key = ++num_keys_ * Gatherable::kKeysPerParam;
  unit->members = members;
  for (Gatherable* const member : members) {
    unit->numel += member->numel;
    member->unit = unit.get();
  }
  return *(units_[unit->key] = std::move(unit));
}

void ParamTable::forget(const Gatherable& param) noexcept {
  const auto entry = by_key_.find(param.key);
  if (entry != by_key_.end() && entry->second == &param) by_key_.erase(entry);
  if (param.unit != nullptr) std::erase(param.unit->members, &param);
}

const GatherUnit* ParamTable::find_unit(uint64_t key) const {
  const auto entry = units_.find(key);
  return entry == units_.end() ? nullptr : entry->second.get();
}

size_t ParamTable::num_params(uint64_t key) const {
  const GatherUnit* const unit = find_unit(key);
  return unit != nullptr ? unit->members.size() : size_t{1};
}

std::vector<Gatherable*> ParamTable::params_of(const std::vector<uint64_t>& keys) const {
  std::vector<Gatherable*> params;
  for (const uint64_t key : keys) {
    if (const GatherUnit* const unit = find_unit(key)) {
      params.insert(params.end(), unit->members.begin(), unit->members.end());
    } else if (const auto entry = by_key_.find(key); entry != by_key_.end()) {
      params.push_back(entry->second);
    }
  }
  return params;
}

std::vector<Gatherable*> ParamTable::missing_persistent() const {
  std::vector<Gatherable*> missing;
  for (const auto& [key, param] : by_key_) {
    if (param->traits.is_persistent && param->state == Gatherable::State::kPartitioned)
      missing.push_back(param);
  }
  std::ranges::sort(missing, {}, &Gatherable::key);
  return missing;
}

void ParamTable::drop_secondary_parts() {
  for (const auto& [key, param] : by_key_) param->secondary.shard.reset();
}

GatherUnit* ParamTable::set_current(GatherUnit* unit) { return std::exchange(current_, unit); }

}  // namespace deepspeed::zero
