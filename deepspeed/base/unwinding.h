// Tells a destructor whether its scope ends normally or by an exception.
#pragma once

#include <exception>

namespace deepspeed {

/// Remembers how many exceptions were in flight at its construction. Make it a member of the scope.
class Unwinding {
 public:
  /// Returns whether an exception thrown since the construction is unwinding the stack.
  bool is_under_way() const { return std::uncaught_exceptions() > before_; }

 private:
  int before_ = std::uncaught_exceptions();
};

}  // namespace deepspeed
