// The keys of zero_optimization that say how gradients are summed over the ranks, and their getters.
#pragma once

#include <cstdint>

namespace deepspeed::config {

/// What they mean stands in the section's table (zero.cpp). Sizes are in elements.
struct ZeroGradientConfig {
  bool contiguous_gradients = true;
  bool reduce_scatter = true;
  int64_t reduce_bucket_size = 500'000'000;
  bool use_multi_rank_bucket_allreduce = true;
  bool ignore_unused_parameters = true;
};

/// The getters that training scripts know. `Holder` derives from this and has config(), the whole config.
template <class Holder>
class ZeroGradientGetters {
 public:
  bool zero_contiguous_gradients() const { return keys().contiguous_gradients; }
  bool zero_reduce_scatter() const { return keys().reduce_scatter; }
  int64_t zero_reduce_bucket_size() const { return keys().reduce_bucket_size; }
  bool zero_multi_rank_bucket_allreduce() const { return keys().use_multi_rank_bucket_allreduce; }
  bool zero_ignore_unused_parameters() const { return keys().ignore_unused_parameters; }

 private:
  const ZeroGradientConfig& keys() const {
    return static_cast<const Holder&>(*this).config().zero_optimization;
  }
};

}  // namespace deepspeed::config
