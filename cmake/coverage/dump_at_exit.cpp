// Keeps the counters of processes that leave by _exit(), as forked ranks and the launcher's children do: gcov
// by itself writes them only when a program ends by exit(). A part of deepspeed_core in the preset coverage.
//
// This definition of _exit() comes before libc's for all that is linked with the library. One call writes the
// counters of all libraries of the process: each has gcov's functions for itself, but gcov keeps one list of
// them.
#include <sys/syscall.h>
#include <unistd.h>

extern "C" void __gcov_dump();

extern "C" __attribute__((visibility("default"))) [[noreturn]] void _exit(int status) {
  __gcov_dump();
  for (;;) ::syscall(SYS_exit_group, status);
}
