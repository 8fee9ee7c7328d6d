// Decides how many threads a rank computes with.
#pragma once

#include <optional>

namespace deepspeed::device {

/// Returns how many threads one of `local_size` ranks on this machine uses. It is `asked` if given, otherwise
/// OMP_NUM_THREADS if set, otherwise an equal share of the cores, at least 1. If a launcher has bound the
/// rank to cores (the mask is smaller than the machine), those already are its share. Throws UsageError for a
/// number below 1.
int threads_per_rank(int local_size, std::optional<int> asked = std::nullopt);

/// Makes torch's operators use threads_per_rank() threads, and returns that number.
int set_threads_per_rank(int local_size, std::optional<int> asked = std::nullopt);

}  // namespace deepspeed::device
