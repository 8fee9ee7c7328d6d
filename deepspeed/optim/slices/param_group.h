// A parameter group holds the hyperparameters that the parameters named in it share.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "deepspeed/base/export.h"

namespace deepspeed::optim {

using HyperparameterValue = std::variant<bool, int64_t, double, std::string, std::pair<double, double>>;

/// Holds hyperparameters by name, in the order in which they were set ("lr", "betas", "eps", "weight_decay",
/// "momentum", ...).
class DEEPSPEED_API Hyperparameters {
 public:
  bool contains(const std::string& name) const;
  void set(const std::string& name, HyperparameterValue value);
  /// Reads a number; a whole one as double. Like the three below it throws UsageError, naming the key, where
  /// the key is absent or of another kind.
  double number(const std::string& name) const;
  bool flag(const std::string& name) const;
  std::pair<double, double> pair(const std::string& name) const;
  const std::string& text(const std::string& name) const;
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
  /// Sets the rate. Throws UsageError for one that is negative or not finite.
  void set_lr(double lr);
};

}  // namespace deepspeed::optim
