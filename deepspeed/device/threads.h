// How many threads a rank computes with.
#pragma once

namespace deepspeed::device {

/// Gives the calling process cores / local ranks threads, unless OMP_NUM_THREADS is set or set_num_threads()
/// was called. Returns the number in force.
int use_rank_threads(int local_ranks);

/// A number of the caller's own, kept by later calls of use_rank_threads().
void set_num_threads(int threads);

}  // namespace deepspeed::device
