#include <exception>
#include <utility>

#include "deepspeed/engine/step/scopes.h"

namespace deepspeed {

NoSync::NoSync(std::function<void()> end) : end_(std::move(end)) {}

NoSync::~NoSync() { end_(); }

CoalescedReduction::CoalescedReduction(std::function<void(bool)> end)
    : end_(std::move(end)), exceptions_(std::uncaught_exceptions()) {}

CoalescedReduction::~CoalescedReduction() noexcept(false) { end_(std::uncaught_exceptions() == exceptions_); }

}  // namespace deepspeed
