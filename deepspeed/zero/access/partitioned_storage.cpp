#include "deepspeed/zero/access/partitioned_storage.h"

#include <utility>

#include "deepspeed/base/message.h"
#include "deepspeed/zero/access/gather_pool.h"

namespace deepspeed::zero {

PartitionedStorage::PartitionedStorage(std::shared_ptr<GatherPool> pool, std::string name, int64_t numel,
                                       at::Device device, std::shared_ptr<Shard> shard,
                                       PartitionedTraits traits)
    : pool_(std::move(pool)),
      name_(std::move(name)),
      numel_(numel),
      dtype_(shard->dtype()),
      device_(device),
      persistent_(traits.is_persistent),
      is_trained_(traits.is_trained),
      is_matrix_(traits.is_matrix),
      shard_(std::move(shard)) {}

PartitionedStorage::PartitionedStorage(std::shared_ptr<PartitionedStorage> source, at::ScalarType dtype)
    : pool_(source->pool_),
      name_(message(source->name_, " in ", c10::toString(dtype))),
      numel_(source->numel_),
      dtype_(dtype),
      device_(source->device_),
      persistent_(false),
      is_trained_(source->is_trained_),
      is_matrix_(source->is_matrix_),
      source_(std::move(source)),
      source_version_(source_->version_),
      key_(source_->key_ + 1 + static_cast<uint64_t>(dtype)) {}

PartitionedStorage::~PartitionedStorage() { pool_->note_destroyed(*this); }

PartitionedStorage::State PartitionedStorage::state() const { return pool_->state_of(*this); }

void PartitionedStorage::begin_use(const std::string& op, bool writes) {
  pool_->begin_use(*this, op, writes);
}

void PartitionedStorage::end_use() { pool_->end_use(*this); }

std::shared_ptr<StorageRecord> PartitionedStorage::cast(at::ScalarType dtype) {
  return pool_->cast(*this, dtype);
}

const comm::ProcessGroup& PartitionedStorage::group() const { return pool_->all_ranks(); }

void PartitionedStorage::hold(bool writable) { pool_->hold(*this, writable); }

void PartitionedStorage::write_back(int modifier_rank) { pool_->write_back(*this, modifier_rank); }

void PartitionedStorage::leave_to_aliases(const at::Tensor& param) { pool_->leave_to_aliases(*this, param); }

void PartitionedStorage::drop_hold(bool forget_writes) noexcept { pool_->drop_hold(*this, forget_writes); }

void PartitionedStorage::on_storage_lost() noexcept { pool_->forget(*this); }

std::string PartitionedStorage::text_where_empty() const {
  // The text is made at every release, so it is joined without a stream.
  return "[zero.access] parameter '" + name_ +
         "' is partitioned, and its data was read without an operator that could gather it; read it inside "
         "zero::GatheredParameters";
}

}  // namespace deepspeed::zero
