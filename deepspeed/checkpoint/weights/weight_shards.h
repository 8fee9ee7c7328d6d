// Weights lie in several files, and an index says which is where.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "deepspeed/checkpoint/weights/weight_source.h"

namespace deepspeed::checkpoint {

/// Opens the weights that `index` ({"weight_map": {name: file beside it}}) names, each in the file that it
/// names. Throws as open_weights().
std::unique_ptr<WeightSource> open_weight_shards(const std::filesystem::path& index, const std::string& key);

}  // namespace deepspeed::checkpoint
