#include "deepspeed/zero/access/gatherable.h"

#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/base/message.h"

namespace deepspeed::zero {

Gatherable::Gatherable(std::string param_name, int64_t param_numel, at::Device home,
                       std::shared_ptr<Shard> own_shard, PartitionedTraits param_traits)
    : name(std::move(param_name)),
      numel(param_numel),
      dtype(own_shard->dtype()),
      device(home),
      traits(param_traits),
      shard(std::move(own_shard)) {}

Gatherable::Gatherable(std::shared_ptr<Gatherable> copied, at::ScalarType other)
    : name(message(copied->name, " in ", c10::toString(other))),
      numel(copied->numel),
      dtype(other),
      device(copied->device),
      traits{.is_persistent = false,
             .is_trained = copied->traits.is_trained,
             .is_matrix = copied->traits.is_matrix},
      source(std::move(copied)),
      source_version(source->version),
      key(source->key + 1 + static_cast<uint64_t>(other)) {}

const std::shared_ptr<Shard>& Gatherable::current_shard() const {
  if (is_stale()) {
    raise<UsageError>("parameter '", source->name, "' was changed after its copy in ", dtype,
                      " was made, which is still in use; run backward before step()");
  }
  return owner().shard;
}

}  // namespace deepspeed::zero
