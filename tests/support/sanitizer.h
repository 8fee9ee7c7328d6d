// Whether the tests run under AddressSanitizer, whose own memory and reads are counted as the process's.
#pragma once

#include <dlfcn.h>

namespace deepspeed::testing {

inline bool has_address_sanitizer() { return ::dlsym(RTLD_DEFAULT, "__asan_init") != nullptr; }

}  // namespace deepspeed::testing
