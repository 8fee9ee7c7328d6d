// Loading a program touches much of its libraries' files that training never needs.
#pragma once

#include <cstdint>

namespace deepspeed::device {

/// Unmaps the code and constants of all loaded libraries, and returns the bytes unmapped. Code and constants
/// stay in the system's page cache, and what is used is mapped again page by page. The process then no longer
/// holds pages that only the dynamic linker and initialisers touched, some 200 MB with CUDA's libraries. A
/// segment with a page that differs from its file, through a breakpoint or patched code, stays mapped.
/// Returns 0 if the system does not say what is mapped, and in a forked process, which starts without these
/// pages.
int64_t release_library_pages();

}  // namespace deepspeed::device
