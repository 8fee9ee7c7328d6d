// The form in which DeepSpeed's BF16_Optimizer writes its optimizer files.
#pragma once

#include <filesystem>
#include <string>

#include "deepspeed/checkpoint/pickle/value.h"

namespace deepspeed::testing {

/// Removes a key, where there is one.
void drop(checkpoint::Dict& dict, const std::string& key);

/// Makes the content of one of our files of stage 1 that of the BF16_Optimizer: it has no stage and no loss
/// scaler, and the partitions keep their padding.
checkpoint::Value in_bf16_optimizer_form(const checkpoint::Value& file);

/// Makes a checkpoint of ours, of stage 1, one that DeepSpeed wrote with its BF16_Optimizer. Without ZeRO the
/// model files have no shapes, but the first rank's part of the optimizer.
void make_bf16_optimizer_form(const std::filesystem::path& tag, bool has_zero);

}  // namespace deepspeed::testing
