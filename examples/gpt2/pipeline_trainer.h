// Trains the GPT as a pipeline.
#pragma once

#include "options.h"

namespace gpt2 {

/// Trains as train() does, with the model cut into options.pipeline.stages stages; the other ranks train data
/// parallel. Prints losses, and saves and resumes where the options say so.
void train_pipeline(const Options& options);

}  // namespace gpt2
