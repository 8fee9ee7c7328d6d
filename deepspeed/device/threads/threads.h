// How many threads a rank computes with.
#pragma once

#include <optional>

namespace deepspeed::device {

/// Counts the processors this process may run on (its affinity mask, not the machine's).
int num_available_cores();

/// Returns how many threads one of `local_size` ranks on this machine uses: `asked` where given, else
/// OMP_NUM_THREADS, else an equal share of the cores, at least 1. A launcher that binds a rank to cores (the
/// mask is smaller than the machine) has made the share already. Throws UsageError for a number below 1.
int threads_per_rank(int local_size, std::optional<int> asked = std::nullopt);

/// Makes torch's operators use threads_per_rank() threads; returns their number.
int set_threads_per_rank(int local_size, std::optional<int> asked = std::nullopt);

}  // namespace deepspeed::device
