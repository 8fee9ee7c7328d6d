// Loading a program touches much of its libraries' files that training never needs.
#pragma once

#include <cstdint>

namespace deepspeed::device {

/// Unmaps the code and constants of all loaded libraries. They stay in the system's page cache, and what is
/// used is mapped again page by page, so that a process no longer holds what the dynamic linker and
/// initialisers alone have touched: some 200 MB where CUDA's libraries are among them. A segment with a page
/// that differs from its file, by a breakpoint or patched code, is left alone. Returns the bytes unmapped; 0
/// where the system does not say what is mapped, and in a forked process, which begins without these pages.
int64_t release_library_pages();

}  // namespace deepspeed::device
