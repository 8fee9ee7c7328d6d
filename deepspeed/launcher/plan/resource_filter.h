// The flags --include and --exclude take NODE_SPEC[@NODE_SPEC...]. A NODE_SPEC is NAME[:SLOT[,SLOT...]].
#pragma once

#include <string>

#include "deepspeed/base/export.h"
#include "deepspeed/launcher/plan/hostfile.h"

namespace deepspeed::launcher {

/// Parses node specs, in the order in which names first occur. Repeated names are merged. Slots are sorted
/// and unique; no slots means the whole host. Throws UsageError naming `flag` and the part that does not fit
/// the grammar.
DEEPSPEED_API ResourcePool parse_node_specs(const std::string& text, const std::string& flag);

/// Keeps those hosts and slots of `pool` that the include text names. They stay in the pool's order. The
/// result may be empty if those hosts have no slots. Throws UsageError for a host or slot that the pool does
/// not have.
DEEPSPEED_API ResourcePool include_resources(const ResourcePool& pool, const std::string& text);

/// Returns `pool` without the hosts and slots that `text` names. The result may be empty. Throws UsageError
/// as include_resources() does.
DEEPSPEED_API ResourcePool exclude_resources(const ResourcePool& pool, const std::string& text);

}  // namespace deepspeed::launcher
