// What a call complains of, as text.
#pragma once

#include <string>

namespace deepspeed::testing {

/// The text of the `Error` that `body()` throws, "no error" where it throws none; other errors pass.
template <class Error, class Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace deepspeed::testing
