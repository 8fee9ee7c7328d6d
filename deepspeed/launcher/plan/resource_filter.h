// --include and --exclude: NODE_SPEC[@NODE_SPEC...] with NODE_SPEC = NAME[:SLOT[,SLOT...]].
#pragma once

#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/launcher/plan/hostfile.h"

namespace deepspeed::launcher {

/// Parses node specs, in the order of their first mention; a name that stands twice is merged, slots are
/// sorted and unique, no slots means the whole host. Throws UsageError naming `flag` and the part that does
/// not fit the grammar.
DEEPSPEED_API ResourcePool parse_node_specs(const std::string& text, const std::string& flag);

/// Keeps the hosts and slots of `pool` that the include text names, in the pool's order; perhaps none, where
/// the hosts have no slots. Throws UsageError for a host or slot that the pool does not have.
DEEPSPEED_API ResourcePool include_resources(const ResourcePool& pool, const std::string& text);

/// Removes the hosts and slots that the text names from the pool; perhaps none is left. Throws UsageError as
/// include_resources() does.
DEEPSPEED_API ResourcePool exclude_resources(const ResourcePool& pool, const std::string& text);

}  // namespace deepspeed::launcher
