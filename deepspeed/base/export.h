// Marks what other programs and libraries may call. Everything else is hidden inside the libraries, so that
// changing it breaks no program. Tests and benchmarks use internals, so they link the same objects
// statically.
#pragma once

#define DEEPSPEED_API [[gnu::visibility("default")]]
// For `extern template class`, which does not accept [[...]] in clang.
#define DEEPSPEED_API_INSTANCE __attribute__((visibility("default")))
