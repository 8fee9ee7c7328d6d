// Trains a GPT with deepspeed: the part of this example that knows the engine.
#pragma once

#include "options.h"

namespace gpt2 {

/// Trains, evaluates, saves and samples as `options` say; rank 0 writes to standard output. Every rank calls
/// it.
void train(const Options& options);

}  // namespace gpt2
