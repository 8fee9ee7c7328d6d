// Counts elements of shapes; files give positions in elements.
#pragma once

#include <cstdint>
#include <vector>

#include "deepspeed/checkpoint/content/model_states.h"

namespace deepspeed::checkpoint {

inline int64_t numel_of(const std::vector<int64_t>& sizes) {
  int64_t numel = 1;
  for (const int64_t size : sizes) numel *= size;
  return numel;
}

inline int64_t numel_of(const NamedShapes& shapes) {
  int64_t numel = 0;
  for (const auto& [name, sizes] : shapes) numel += numel_of(sizes);
  return numel;
}

}  // namespace deepspeed::checkpoint
