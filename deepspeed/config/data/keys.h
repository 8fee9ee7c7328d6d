// The sections of the data, of what is learned from it in which order, and of smaller models, which do not
// exist yet: their keys are read and checked, and kept as JSON.
#pragma once

#include <vector>

#include "deepspeed/config/table/field.h"

namespace deepspeed::config {

std::vector<Field> curriculum_learning_keys();
std::vector<Field> data_efficiency_keys();
std::vector<Field> eigenvalue_keys();
std::vector<Field> compression_training_keys();
std::vector<Field> weight_quantization_keys();

/// Adds to weight_quantization its switch, which an older form leaves out.
Json with_switch(const Json& given);

}  // namespace deepspeed::config
