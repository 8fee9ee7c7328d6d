// What a part of a model throws, a layer, a loss_fn or a region that is recomputed, says which one it was: on
// the rank that ran it and, by its text, on all.
#pragma once

#include <string>
#include <utility>

namespace deepspeed::autograd {

/// Throws the exception that is being handled again, with "this was in PLACE" added to its text. Errors of
/// torch, UsageError and CommError keep their class; any other std::exception becomes an Error that holds it
/// (std::rethrow_if_nested). What is no std::exception goes on as it is.
[[noreturn]] void rethrow_with_place(const std::string& place);

/// Calls `work`; where it throws, `place()` says what it ran.
template <class Work, class Place>
auto with_place(Work&& work, Place&& place) -> decltype(work()) {
  try {
    return std::forward<Work>(work)();
  } catch (...) {
    rethrow_with_place(std::forward<Place>(place)());
  }
}

}  // namespace deepspeed::autograd
