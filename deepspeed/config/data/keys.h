// Sections for data, curricula and model compression, which are not implemented. Their keys are read, checked
// and kept as JSON.
#pragma once

#include <vector>

#include "deepspeed/config/table/field.h"

namespace deepspeed::config {

std::vector<Field> curriculum_learning_keys();
std::vector<Field> data_efficiency_keys();
std::vector<Field> eigenvalue_keys();
std::vector<Field> compression_training_keys();
std::vector<Field> weight_quantization_keys();

/// Adds "enabled": true to the section weight_quantization if an older form leaves the key out.
Json with_switch(const Json& given);

}  // namespace deepspeed::config
