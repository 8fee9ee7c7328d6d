// Reads weights spread over several files, with an index that names the file of each.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "deepspeed/checkpoint/weights/weight_source.h"

namespace deepspeed::checkpoint {

/// Opens the weights named by `index` ({"weight_map": {name: file in the same folder}}). Throws like
/// open_weights().
std::unique_ptr<WeightSource> open_weight_shards(const std::filesystem::path& index, const std::string& key);

}  // namespace deepspeed::checkpoint
