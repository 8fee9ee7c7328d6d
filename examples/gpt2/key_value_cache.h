// What the attention of a model keeps of the tokens that it has read, so that the next one costs one
// position.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace gpt2 {

/// Keys and values of one layer: (B, H, context, D) each, of which the cache's first `length` positions are
/// filled; undefined before the first one is.
struct LayerCache {
  at::Tensor keys;
  at::Tensor values;
};

struct KeyValueCache {
  std::vector<LayerCache> layers;  // empty before the first use
  int64_t length = 0;              // positions that were read

  /// Empties the cache, so that the next token is the first one again. The memory stays.
  void clear() { length = 0; }
};

}  // namespace gpt2
