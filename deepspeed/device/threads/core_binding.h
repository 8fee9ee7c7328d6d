// Assigns the machine's processors to ranks, and binds threads to some of them.
#pragma once

#include <vector>

namespace deepspeed::device {

/// Lists numbers of processors in ascending order.
using Cores = std::vector<int>;

/// Lists the processors this process may run on (its affinity mask), at least one.
Cores available_cores();

/// Lists the processors of one of `local_size` ranks on this machine. It is an equal share of those that this
/// process may run on, or all of them if a launcher has already bound the rank. There is at least one; with
/// fewer processors than ranks, ranks share them.
Cores cores_of_rank(int local_rank, int local_size);

/// Returns the last `part` (0 to 1) of the cores, as DeepSpeed divides them (cpuadam_cores_perc). The result
/// has at least one core, but never all of several cores.
Cores last_cores(const Cores& cores, double part);

/// Binds the calling thread, and threads that it starts later, to the processors. In these threads
/// at::parallel_for() uses one thread per processor. Other threads are unaffected. If the system refuses,
/// only the number of threads is set, and a warning is logged.
void bind_this_thread(const Cores& cores);

}  // namespace deepspeed::device
