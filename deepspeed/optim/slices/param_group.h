// A parameter group holds the hyperparameters shared by the parameters that it names.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::optim {

using HyperparameterValue = std::variant<bool, int64_t, double, std::string, std::pair<double, double>>;

/// Holds hyperparameters by name, in the order in which they were set. Examples: "lr", "betas", "eps",
/// "weight_decay", "momentum".
class DEEPSPEED_API Hyperparameters {
 public:
  bool contains(const std::string& name) const;
  void set(const std::string& name, HyperparameterValue value);
  /// Returns a number; an integer is converted to double. number(), flag(), pair() and text() throw
  /// UsageError, naming the key, if the key is absent or has another type.
  double number(const std::string& name) const;
  bool flag(const std::string& name) const;
  std::pair<double, double> pair(const std::string& name) const;
  const std::string& text(const std::string& name) const;
  /// Sets `value` to the named hyperparameter, whose type must be Value. Throws as the four functions above
  /// do.
  template <class Value>
  void read(const std::string& name, Value& value) const {
    if constexpr (std::is_same_v<Value, bool>) {
      value = flag(name);
    } else if constexpr (std::is_same_v<Value, double>) {
      value = number(name);
    } else if constexpr (std::is_same_v<Value, std::string>) {
      value = text(name);
    } else {
      value = pair(name);
    }
  }
  const std::vector<std::pair<std::string, HyperparameterValue>>& items() const { return items_; }

 private:
  std::vector<std::pair<std::string, HyperparameterValue>> items_;
};

/// Throws UsageError, naming `where`, for a rate that is negative or not finite.
DEEPSPEED_API void check_lr(double lr, const std::source_location& where = std::source_location::current());

struct DEEPSPEED_API ParamGroup {
  Hyperparameters options;               // always holds "lr"
  std::vector<std::string> param_names;  // in the order of the flat space

  double lr() const { return options.number("lr"); }
  /// Sets the learning rate. Throws UsageError for one that is negative or not finite.
  void set_lr(double lr);
};

}  // namespace deepspeed::optim
