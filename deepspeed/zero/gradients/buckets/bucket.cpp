#include "deepspeed/zero/gradients/buckets/bucket.h"

#include <algorithm>

#include "deepspeed/base/error.h"

namespace deepspeed::zero {

std::vector<Bucket> make_buckets(const std::vector<FlatLayout>& layouts, int64_t max_numel,
                                 const std::vector<std::vector<BucketKind>>& kinds) {
  if (max_numel < 1) raise<UsageError>("bucket size ", max_numel, ", expected at least 1 element");
  std::vector<Bucket> buckets;
  for (size_t group = layouts.size(); group-- > 0;) {
    const auto& params = layouts[group].params();
    bool open = false;
    for (auto param = params.rbegin(); param != params.rend(); ++param) {
      if (param->in_flat.empty()) continue;
      const BucketKind kind = kinds.empty() ? BucketKind{} : kinds[group][param->index];
      if (!open || buckets.back().in_flat.end - param->in_flat.begin > max_numel ||
          buckets.back().kind != kind) {
        buckets.push_back({group, param->in_flat, {}, kind});
        open = true;
      }
      buckets.back().in_flat.begin = param->in_flat.begin;
      buckets.back().params.push_back(param->index);
    }
  }
  for (Bucket& bucket : buckets) std::reverse(bucket.params.begin(), bucket.params.end());
  return buckets;
}

}  // namespace deepspeed::zero
