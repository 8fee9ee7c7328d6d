#include "deepspeed/zero/gradients/buckets/bucket_space.h"

#include <utility>

namespace deepspeed::zero {
namespace {

// Lays parameters one after the other, without gaps.
class FlatBucketSpace : public BucketSpace {
 public:
  FlatBucketSpace(const ParamStore& store, const comm::ProcessGroup& shard_group, std::vector<Interval> owned)
      : store_(store), num_ranks_(shard_group.size()), owned_(std::move(owned)) {}

  int64_t numel(const Bucket& bucket) const override { return bucket.in_flat.numel(); }
  bool is_as_in_parameter() const override { return true; }

  void put(const Bucket& bucket, size_t param, const at::Tensor& gradient, const at::Tensor& buffer,
           CopyBatch& copies) const override {
    copies.copy(place(bucket, param, buffer).view(gradient.sizes()), gradient);
  }
  void add(const Bucket& bucket, size_t param, const at::Tensor& gradient,
           const at::Tensor& buffer) const override {
    place(bucket, param, buffer).view(gradient.sizes()).add_(gradient);
  }

  std::vector<Interval> owned(const Bucket& bucket) const override {
    std::vector<Interval> owned;
    for (int rank = 0; rank < num_ranks_; ++rank) {
      const Interval common = intersect(layout(bucket).partition(rank), bucket.in_flat);
      owned.push_back(relative(common, bucket.in_flat));
    }
    return owned;
  }

  PartOfBucket own_part(const Bucket& bucket) const override {
    const Interval common = intersect(bucket.in_flat, owned_[bucket.group]);
    return {relative(common, bucket.in_flat), relative(common, owned_[bucket.group])};
  }

 private:
  static Interval relative(const Interval& part, const Interval& whole) {
    return {part.begin - whole.begin, part.end - whole.begin};
  }
  const FlatLayout& layout(const Bucket& bucket) const { return store_.groups()[bucket.group].layout; }
  at::Tensor place(const Bucket& bucket, size_t param, const at::Tensor& buffer) const override {
    const Interval in_flat = layout(bucket).place(param);
    return buffer.narrow(0, in_flat.begin - bucket.in_flat.begin, in_flat.numel());
  }

  const ParamStore& store_;
  int num_ranks_;
  std::vector<Interval> owned_;
};

// Lays a bucket out as (ranks, shards of its parameters). A rank's shards are contiguous, as in the gradients
// that it keeps.
class ShardBucketSpace : public BucketSpace {
 public:
  ShardBucketSpace(const ParamStore& store, const comm::ProcessGroup& shard_group)
      : store_(store), num_ranks_(shard_group.size()), rank_(shard_group.rank()) {}

  int64_t numel(const Bucket& bucket) const override { return num_ranks_ * in_kept(bucket).numel(); }
  bool is_as_in_parameter() const override { return false; }  // padded

  void put(const Bucket& bucket, size_t param, const at::Tensor& gradient, const at::Tensor& buffer,
           CopyBatch& copies) const override {
    const at::Tensor rows = place(bucket, param, buffer);
    const auto [whole, rest] = cut(gradient, rows.size(1));
    copies.copy(rows.narrow(0, 0, whole.size(0)), whole);
    if (whole.size(0) == num_ranks_) return;
    rows.narrow(0, whole.size(0), num_ranks_ - whole.size(0)).zero_();
    if (rest.numel() > 0) copies.copy(rows[whole.size(0)].narrow(0, 0, rest.numel()), rest);
  }

  void add(const Bucket& bucket, size_t param, const at::Tensor& gradient,
           const at::Tensor& buffer) const override {
    const at::Tensor rows = place(bucket, param, buffer);
    const auto [whole, rest] = cut(gradient, rows.size(1));
    rows.narrow(0, 0, whole.size(0)).add_(whole);
    if (rest.numel() > 0) rows[whole.size(0)].narrow(0, 0, rest.numel()).add_(rest);
  }

  std::vector<Interval> owned(const Bucket& bucket) const override {
    std::vector<Interval> owned;
    const int64_t numel = in_kept(bucket).numel();
    for (int rank = 0; rank < num_ranks_; ++rank) owned.push_back({rank * numel, (rank + 1) * numel});
    return owned;
  }

  PartOfBucket own_part(const Bucket& bucket) const override {
    const Interval kept = in_kept(bucket);
    return {{rank_ * kept.numel(), (rank_ + 1) * kept.numel()}, kept};
  }

 private:
  // The bucket's parameters are consecutive, apart from those without elements.
  Interval in_kept(const Bucket& bucket) const {
    const ShardLayout& shards = *store_.shards(bucket.group);
    return {shards.place(bucket.params.front()).begin, shards.place(bucket.params.back()).end};
  }

  /// Returns a view of the buffer with each rank's shard of a parameter, (ranks, shard).
  at::Tensor place(const Bucket& bucket, size_t param, const at::Tensor& buffer) const override {
    const Interval kept = in_kept(bucket);
    const Interval shard = store_.shards(bucket.group)->place(param);
    return buffer.view({num_ranks_, kept.numel()}).narrow(1, shard.begin - kept.begin, shard.numel());
  }

  /// Cuts a gradient into full shards, (n, shard), and the rest. `shard`: elements.
  static std::pair<at::Tensor, at::Tensor> cut(const at::Tensor& gradient, int64_t shard) {
    const at::Tensor flat = gradient.reshape({-1});
    const int64_t whole = flat.numel() / shard;
    return {flat.narrow(0, 0, whole * shard).view({whole, shard}),
            flat.narrow(0, whole * shard, flat.numel() - whole * shard)};
  }

  const ParamStore& store_;
  int num_ranks_;
  int rank_;
};

}  // namespace

void BucketSpace::put_zeros(const Bucket& bucket, size_t param, const at::Tensor& buffer) const {
  place(bucket, param, buffer).zero_();
}

std::vector<at::Tensor> BucketSpace::gradients(const Bucket& bucket, const at::Tensor& buffer) const {
  std::vector<at::Tensor> result;
  for (const size_t param : bucket.params) result.push_back(place(bucket, param, buffer));
  return result;
}

std::unique_ptr<BucketSpace> make_bucket_space(const ParamStore& store, const comm::ProcessGroup& shard_group,
                                               std::vector<Interval> owned) {
  if (!store.groups().empty() && store.shards(0) != nullptr)
    return std::make_unique<ShardBucketSpace>(store, shard_group);
  return std::make_unique<FlatBucketSpace>(store, shard_group, std::move(owned));
}

}  // namespace deepspeed::zero
