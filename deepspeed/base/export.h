// The mark of what other programs and libraries may call. All else is hidden inside of the libraries, so that
// a change of it breaks no program; tests and benchmarks, which look inside, link the same objects
// statically.
#pragma once

#define DEEPSPEED_API [[gnu::visibility("default")]]
// For `extern template class`, where clang takes no [[...]].
#define DEEPSPEED_API_INSTANCE __attribute__((visibility("default")))
