// The text of the error that a call is expected to throw.
#pragma once

#include <string>

namespace deepspeed::launcher {

/// The message of the `ErrorType` that `call` throws; a text that fits no expectation where it throws
/// nothing.
template <class ErrorType, class Call>
std::string error_text(Call call) {
  try {
    call();
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "(nothing was thrown)";
}

}  // namespace deepspeed::launcher
