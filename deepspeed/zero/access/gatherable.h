// One partitioned parameter, or a low-precision copy of one, as the parts of a pool know it: what stays, and
// what changes while it comes and goes.
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
  bool is_persistent = false;  // it stays whole once it was gathered, until the shards change
  bool is_trained = true;      // it needs a gradient
  bool is_matrix = true;       // it has two dimensions or more
};

/// This rank's part of what was gathered last over all ranks. Gathers over the near ranks use it.
struct SecondaryPart {
  std::shared_ptr<MemoryShard> shard;  // null: there is none
  int64_t version = -1;                // of the shards when it was kept
  bool is_rounded = false;             // what was gathered then was quantized
};

/// All members that are not const change under the lock of the pool.
struct Gatherable {
  enum class State { kPartitioned, kGathering, kWhole };

  /// Keys of parameters and units in traces are multiples of it. The keys of a parameter's copies follow its
  /// own, one a dtype.
  static constexpr uint64_t kKeysPerParam = 256;

  /// Describes a parameter of `numel` elements on `device`. shard: (ceil(numel / world size)).
  Gatherable(std::string name, int64_t numel, at::Device device, std::shared_ptr<Shard> shard,
             PartitionedTraits traits);
  /// Describes a copy of `source` in another dtype. Each gather makes it anew from the shards.
  Gatherable(std::shared_ptr<Gatherable> source, at::ScalarType dtype);
  Gatherable(const Gatherable&) = delete;
  Gatherable& operator=(const Gatherable&) = delete;

  bool is_copy() const { return source != nullptr; }
  /// The parameter: of a copy, its source.
  const Gatherable& owner() const { return source ? *source : *this; }
  /// The unit in which the parameter is gathered; null where it is gathered by itself.
  GatherUnit* unit_of_owner() const { return owner().unit; }
  /// Returns whether the source of this copy has changed since it was made.
  bool is_stale() const { return source && source->version != source_version; }
  /// Whether an operator or a GatheredParameters needs it now.
  bool is_in_use() const { return num_uses > 0 || num_holds > 0; }
  /// Whether all ranks have a secondary part with the present values.
  bool has_secondary() const { return secondary.shard && secondary.version == version; }
  /// The shard to send: a copy sends its source's. Throws UsageError for a stale copy.
  const std::shared_ptr<Shard>& current_shard() const;

  const std::string name;  // "h.0.weight", or "h.0.weight in BFloat16"
  const int64_t numel;
  const at::ScalarType dtype;
  const at::Device device;
  const PartitionedTraits traits;
  const std::shared_ptr<Shard> shard;        // of a parameter; null for a copy
  const std::shared_ptr<Gatherable> source;  // of a copy
  const int64_t source_version = 0;          // of the source when the copy was made

  std::weak_ptr<StorageRecord> record;  // the storage that is filled and emptied
  uint64_t key = 0;                     // in traces
  GatherUnit* unit = nullptr;           // of which it is a member; a copy is no member

  State state = State::kPartitioned;
  int num_uses = 0;            // operators that run
  int num_holds = 0;           // GatheredParameters that hold it
  bool is_writable = false;    // a GatheredParameters may write it
  bool was_written = false;    // an operator has written it since the latest hold that writes
  bool is_spoilt = false;      // a write into it goes when the last hold ends
  bool is_kept = false;        // it is a copy that was written to, so that it stays whole
  bool is_rounded = false;     // what is whole or on its way was quantized
  bool was_set = false;        // the shard got other values than the optimizer's
  bool is_rewritten = false;   // an operator writes it outside of any window and hold
  bool is_given_back = false;  // its parameter is an ordinary tensor over other memory
  int64_t version = 0;         // counts the changes of the shards
  SecondaryPart secondary;

  at::Tensor unspoilt;      // what was whole before, where that must stay; undefined: it is released
  at::Tensor before_write;  // the values that other holds read, until the hold that writes ends
  at::Tensor whole;         // (world size * shard numel), its first `numel` elements are the parameter's
  std::shared_ptr<ShardGather> gather;  // brings it while kGathering; null where a whole source made it
  size_t place_in_gather = 0;
  LiveSet<Gatherable>::Place place;  // among what is live, unless kPartitioned
};

}  // namespace deepspeed::zero
