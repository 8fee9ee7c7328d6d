// How many threads a rank computes with.
#pragma once

#include <optional>

namespace deepspeed::device {

/// Processors this process may run on (its affinity mask, not the machine's).
int num_available_cores();

/// Threads of one of `local_size` ranks that share this machine: `asked` where given, else OMP_NUM_THREADS,
/// else an equal share of the cores, at least 1. A launcher that binds a rank to cores (the mask is smaller
/// than the machine) has made the share already. Throws UsageError for a number below 1.
int threads_per_rank(int local_size, std::optional<int> asked = std::nullopt);

/// Makes torch's operators use threads_per_rank() threads; returns their number.
int set_threads_per_rank(int local_size, std::optional<int> asked = std::nullopt);

}  // namespace deepspeed::device
