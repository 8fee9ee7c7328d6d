#include "deepspeed/autograd/error_place.h"

#include <exception>

#include <c10/util/Exception.h>

#include "deepspeed/base/error.h"

namespace deepspeed::autograd {

void rethrow_with_place(const std::string& place) {
  const std::string was_in = "this was in " + place;
  const auto with_text = [&](const std::exception& error) { return message(error.what(), "; ", was_in); };
  try {
    throw;
  } catch (c10::Error& error) {
    error.add_context(was_in);
    throw;
  } catch (const UsageError& error) {
    throw UsageError(with_text(error));
  } catch (const CommError& error) {
    throw CommError(with_text(error));
  } catch (const std::exception& error) {
    std::throw_with_nested(Error(with_text(error)));
  }
}

}  // namespace deepspeed::autograd
