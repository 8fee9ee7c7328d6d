// A signal that asks the process to end soon, turned into a flag that a program looks at when it suits it.
#pragma once

namespace deepspeed::device {

/// Makes `signal` (SIGTERM, SIGUSR1, ...) set the flag in place of ending the process. Several signals may be
/// caught, each with one call; they share the flag. Throws UsageError for a signal that cannot be caught.
void catch_preemption_signal(int signal);

/// Whether one of the signals has arrived in this process; it stays so.
bool preemption_signal_received();

}  // namespace deepspeed::device
