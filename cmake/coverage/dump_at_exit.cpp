// Keeps the counters of processes that leave by _exit() or execve(), as forked ranks and the launcher's
// children do: gcov by itself writes them only when a program ends by exit(). A part of deepspeed_core in the
// preset coverage.
//
// These definitions come before libc's for all that is linked with the library. One call writes the counters
// of all libraries of the process: each has gcov's functions for itself, but gcov keeps one list of them.
#include <cerrno>

#include <sys/syscall.h>
#include <unistd.h>

extern "C" void __gcov_dump();
extern "C" void __gcov_reset();

extern "C" __attribute__((visibility("default"))) [[noreturn]] void _exit(int status) {
  __gcov_dump();
  for (;;) ::syscall(SYS_exit_group, status);
}

extern "C" __attribute__((visibility("default"))) int execve(const char* program, char* const argv[],
                                                             char* const envp[]) noexcept {
  __gcov_dump();
  ::syscall(SYS_execve, program, argv, envp);
  const int error = errno;
  __gcov_reset();  // the program was not executed: what comes is counted anew, and written once more
  errno = error;
  return -1;
}
