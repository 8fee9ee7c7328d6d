#include "deepspeed/optim/slices/param_group.h"

#include <algorithm>
#include <cmath>

#include "deepspeed/base/error.h"

namespace deepspeed::optim {
namespace {

using Items = std::vector<std::pair<std::string, HyperparameterValue>>;

const HyperparameterValue& find_value(const Items& items, const std::string& name) {
  const auto it =
      std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.first == name; });
  if (it == items.end()) {
    raise<UsageError>("no hyperparameter '", name, "'; set it in the options of the group");
  }
  return it->second;
}

template <class Kind>
const Kind& find_as(const Items& items, const std::string& name, const char* kind) {
  const Kind* value = std::get_if<Kind>(&find_value(items, name));
  if (value == nullptr) {
    raise<UsageError>("hyperparameter '", name, "' is no ", kind);
  }
  return *value;
}

}  // namespace

bool Hyperparameters::contains(const std::string& name) const {
  return std::any_of(items_.begin(), items_.end(), [&](const auto& item) { return item.first == name; });
}

void Hyperparameters::set(const std::string& name, HyperparameterValue value) {
  for (auto& item : items_) {
    if (item.first == name) {
      item.second = std::move(value);
      return;
    }
  }
  items_.emplace_back(name, std::move(value));
}

double Hyperparameters::number(const std::string& name) const {
  if (const auto* whole = std::get_if<int64_t>(&find_value(items_, name))) {
    return static_cast<double>(*whole);
  }
  return find_as<double>(items_, name, "number");
}

bool Hyperparameters::flag(const std::string& name) const { return find_as<bool>(items_, name, "flag"); }

std::pair<double, double> Hyperparameters::pair(const std::string& name) const {
  return find_as<std::pair<double, double>>(items_, name, "pair of numbers");
}

const std::string& Hyperparameters::text(const std::string& name) const {
  return find_as<std::string>(items_, name, "text");
}

void check_lr(double lr, const std::source_location& where) {
  if (std::isfinite(lr) && lr >= 0.0) return;
  raise_at<UsageError>(where, "the learning rate is ", lr, ", expected a finite number of at least 0");
}

void ParamGroup::set_lr(double lr) {
  check_lr(lr);
  options.set("lr", lr);
}

}  // namespace deepspeed::optim
