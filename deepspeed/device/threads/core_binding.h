// Which of the machine's processors a rank has, and threads that keep to a part of them.
#pragma once

#include <vector>

namespace deepspeed::device {

/// Numbers of processors, ascending.
using Cores = std::vector<int>;

/// Lists the processors this process may run on (its affinity mask, not the machine's), at least one.
Cores available_cores();

/// Lists the processors of one of `local_size` ranks that share this machine: an equal share of those that
/// this process may run on, or all of them where a launcher has bound the rank already. It is at least one;
/// ranks share where there are fewer processors than ranks.
Cores cores_of_rank(int local_rank, int local_size);

/// Takes the last part of the cores, as DeepSpeed cuts them (cpuadam_cores_perc), but at least one, and not
/// all of several. part: 0 to 1.
Cores last_cores(const Cores& cores, double part);

/// Binds the calling thread, and those that it starts later, to the processors; at::parallel_for() uses as
/// many threads there. Other threads are left as they are. Where the system refuses to bind, only the number
/// of threads is set, and a warning says so.
void bind_this_thread(const Cores& cores);

}  // namespace deepspeed::device
