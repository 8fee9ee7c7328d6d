// State of one partitioned parameter, or of a low-precision copy, in a pool: what stays, and what changes
// with each gather.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "deepspeed/zero/access/gather_bucket.h"
#include "deepspeed/zero/access/live_set.h"
#include "deepspeed/zero/shards/shard.h"
#include "deepspeed/zero/storage/storage_record.h"

namespace deepspeed::zero {

struct GatherUnit;

struct PartitionedTraits {
  bool is_persistent = false;  // it stays whole after a gather until the shards change
  bool is_trained = true;      // it requires a gradient
  bool is_matrix = true;       // it has at least two dimensions
};

/// Holds this rank's part of a parameter's second copy, for gathers over neighbouring ranks.
struct SecondaryPart {
  std::shared_ptr<MemoryShard> shard;  // null: none
  int64_t version = -1;                // version of the shards when the part was kept
  bool is_rounded = false;             // the part comes from a quantized gather
};

/// Describes a partitioned parameter or a copy. Members that are not const change under the pool's lock.
struct Gatherable {
  enum class State { kPartitioned, kGathering, kWhole };

  /// Spaces the keys of parameters and units in traces (prefetch/use_trace.h). Between them lie the keys of a
  /// parameter's copies, one per dtype.
  static constexpr uint64_t kKeysPerParam = 256;

  /// Describes a parameter of `numel` elements on `device`. shard: this rank's, ceil(numel / ranks) elements.
  Gatherable(std::string name, int64_t numel, at::Device device, std::shared_ptr<Shard> shard,
             PartitionedTraits traits);
  /// Describes a copy of `source` in another dtype, remade from the shards by each gather.
  Gatherable(std::shared_ptr<Gatherable> source, at::ScalarType dtype);
  Gatherable(const Gatherable&) = delete;
  Gatherable& operator=(const Gatherable&) = delete;

  bool is_copy() const { return source != nullptr; }
  /// Returns the parameter itself, or a copy's source.
  const Gatherable& owner() const { return source ? *source : *this; }
  /// Returns the parameter's unit; null if it is gathered by itself.
  GatherUnit* unit_of_owner() const { return owner().unit; }
  /// Returns whether this is a copy whose source has changed since the copy was made.
  bool is_stale() const { return source && source->version != source_version; }
  /// Returns whether an operator or a GatheredParameters is using this data.
  bool is_in_use() const { return num_uses > 0 || num_holds > 0; }
  /// Returns whether the secondary part has the shards' current values, here and on all ranks.
  bool has_secondary() const { return secondary.shard && secondary.version == version; }
  /// Returns the shard that a gather sends. A copy sends the shard of its source. Throws UsageError if the
  /// source has changed since the copy was made.
  const std::shared_ptr<Shard>& current_shard() const;

  const std::string name;  // "h.0.weight", or "h.0.weight in BFloat16"
  const int64_t numel;
  const at::ScalarType dtype;
  const at::Device device;
  const PartitionedTraits traits;
  const std::shared_ptr<Shard> shard;        // null for a copy
  const std::shared_ptr<Gatherable> source;  // only of a copy
  const int64_t source_version = 0;          // version of the source when the copy was made

  std::weak_ptr<StorageRecord> record;  // the storage that is filled and emptied
  uint64_t key = 0;                     // in traces
  GatherUnit* unit = nullptr;           // the unit that it is a member of; null for a copy

  State state = State::kPartitioned;
  int num_uses = 0;            // running operators
  int num_holds = 0;           // GatheredParameters that hold it
  bool is_writable = false;    // a GatheredParameters may write it
  bool was_written = false;    // an operator has written it since the latest writable hold
  bool is_spoilt = false;      // it has a write that is dropped when the last hold ends
  bool is_kept = false;        // a copy that was written to, so it stays whole
  bool is_rounded = false;     // the gathered or arriving data was quantized
  bool was_set = false;        // the shard was set other than by the optimizer
  bool is_rewritten = false;   // an operator is writing it outside of any window and hold
  bool is_given_back = false;  // its parameter is an ordinary tensor in other memory
  int64_t version = 0;         // counts the changes of the shards
  SecondaryPart secondary;

  at::Tensor unspoilt;      // data to restore after a dropped write; undefined: the parameter is released
  at::Tensor before_write;  // what other holds get back if the writable hold's writes are dropped
  at::Tensor whole;         // (world size * shard numel); the first `numel` elements are the parameter's
  std::shared_ptr<ShardGather> gather;  // the gather in progress; null if made from a whole source
  size_t place_in_gather = 0;
  LiveSet<Gatherable>::Place place;  // in the live set, unless kPartitioned
};

}  // namespace deepspeed::zero
