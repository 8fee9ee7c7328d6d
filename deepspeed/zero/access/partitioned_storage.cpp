#include "deepspeed/zero/access/partitioned_storage.h"

#include <utility>

#include "deepspeed/zero/access/gather_pool.h"

namespace deepspeed::zero {

PartitionedStorage::PartitionedStorage(std::shared_ptr<GatherPool> pool, std::string name, int64_t numel,
                                       at::Device device, std::shared_ptr<Shard> shard,
                                       PartitionedTraits traits)
    : pool_(std::move(pool)), param_(std::move(name), numel, device, std::move(shard), traits) {}

PartitionedStorage::PartitionedStorage(const std::shared_ptr<PartitionedStorage>& source,
                                       at::ScalarType dtype)
    : pool_(source->pool_), param_(std::shared_ptr<Gatherable>(source, &source->param_), dtype) {}

PartitionedStorage::~PartitionedStorage() { pool_->forget(param_); }

PartitionedStorage::State PartitionedStorage::state() const { return pool_->state_of(param_); }

void PartitionedStorage::begin_use(const std::string& op, bool writes) {
  pool_->begin_use(param_, op, writes);
}

void PartitionedStorage::end_use() { pool_->end_use(param_); }

std::shared_ptr<StorageRecord> PartitionedStorage::cast(at::ScalarType dtype) {
  return pool_->make_copy(*this, dtype);
}

const comm::ProcessGroup& PartitionedStorage::group() const { return pool_->all_ranks(); }

void PartitionedStorage::hold(bool writable) { pool_->hold(param_, writable); }

void PartitionedStorage::warn_of_lost_write() noexcept { pool_->warn_of_lost_write(param_.name); }

void PartitionedStorage::write_back(int modifier_rank) { pool_->write_back(param_, modifier_rank); }

void PartitionedStorage::leave_to_aliases(const at::Tensor& param) { pool_->leave_to_aliases(param_, param); }

void PartitionedStorage::drop_hold(bool writable, bool forget_writes) noexcept {
  pool_->drop_hold(param_, writable, forget_writes);
}

void PartitionedStorage::on_storage_lost() noexcept { pool_->forget(param_); }

std::string PartitionedStorage::text_where_empty() const {
  // The text is made at every release, so it is joined without a stream.
  return "[zero.access] parameter '" + param_.name +
         "' is partitioned, and its data was read without an operator that could gather it; read it inside "
         "zero::GatheredParameters";
}

}  // namespace deepspeed::zero
