// Adds to an exception which part of a model threw it: a layer, a loss_fn or a recomputed region. The name of
// the part is in the exception's text, so a rank that is only sent the text sees it too.
#pragma once

#include <string>
#include <utility>

namespace deepspeed::autograd {

/// Rethrows the current exception with "this was in PLACE" added to its text. Errors of torch, UsageError and
/// CommError keep their class. Any other std::exception becomes an Error that nests it
/// (std::rethrow_if_nested). Anything else is rethrown unchanged.
[[noreturn]] void rethrow_with_place(const std::string& place);

/// Calls `work`. If it throws, adds the text of `place()` to the exception.
template <class Work, class Place>
auto with_place(Work&& work, Place&& place) -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (...) {
    rethrow_with_place(std::forward<Place>(place)());
  }
}

}  // namespace deepspeed::autograd
