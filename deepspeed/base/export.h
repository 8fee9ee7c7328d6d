// The mark of what other programs and libraries may call. All else is hidden inside of the libraries, so that
// a change of it breaks no program; tests and benchmarks, which look inside, link the same objects
// statically.
#pragma once

// Clang takes no [[...]] behind `extern template class`.
#define DEEPSPEED_API __attribute__((visibility("default")))
