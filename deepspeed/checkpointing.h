// Activation checkpointing: `deepspeed.checkpointing`. It is included beside deepspeed.h by programs that use
// it.
#pragma once

#include "deepspeed/activation/checkpoint.h"
#include "deepspeed/activation/offload_activations.h"
#include "deepspeed/random/rng_tracker.h"

namespace deepspeed::checkpointing {
using deepspeed::CudaRNGStatesTracker;
using deepspeed::get_cuda_rng_tracker;
using deepspeed::model_parallel_cuda_manual_seed;
using deepspeed::model_parallel_reconfigure_tp_seed;
}  // namespace deepspeed::checkpointing
