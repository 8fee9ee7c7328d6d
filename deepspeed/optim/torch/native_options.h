// Options of this library's optimizers in torch's form: chained setters, one object a parameter group.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <torch/optim/optimizer.h>

#include "deepspeed/optim/slices/param_group.h"

namespace deepspeed::optim {

/// The options as the optimizers see them: hyperparameters by name.
class NativeOptions : public torch::optim::OptimizerOptions {
 public:
  virtual Hyperparameters hyperparameters() const = 0;
  /// Throws UsageError where one of the options is missing or of another kind.
  virtual void set_hyperparameters(const Hyperparameters& from) = 0;
};

/// `Derived` has `lr()` and `static void visit(self, visitor)`, which calls visitor(name, value) for each
/// option that is a group's own.
template <class Derived>
class NativeOptionsOf : public NativeOptions {
 public:
  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    return std::make_unique<Derived>(self());
  }
  double get_lr() const override { return self().lr(); }
  void set_lr(const double lr) override { static_cast<Derived&>(*this).lr(lr); }

  Hyperparameters hyperparameters() const override {
    Hyperparameters result;
    Derived::visit(self(), [&](const char* name, const auto& value) { result.set(name, value); });
    return result;
  }

  void set_hyperparameters(const Hyperparameters& from) override {
    Derived::visit(static_cast<Derived&>(*this), [&](const char* name, auto& value) {
      using Value = std::remove_reference_t<decltype(value)>;
      if constexpr (std::is_same_v<Value, bool>) {
        value = from.flag(name);
      } else if constexpr (std::is_same_v<Value, double>) {
        value = from.number(name);
      } else if constexpr (std::is_same_v<Value, std::string>) {
        value = from.text(name);
      } else {
        value = from.pair(name);
      }
    });
  }

 private:
  const Derived& self() const { return static_cast<const Derived&>(*this); }
};

}  // namespace deepspeed::optim
