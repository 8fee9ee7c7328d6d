// Lists of CPU cores such as "1,3-5", and how a machine's cores are shared out among its ranks.
#pragma once

#include <string>
#include <vector>

namespace deepspeed::launcher {

/// Reads cores in the order of the text: numbers and ranges FIRST-LAST between commas. Throws UsageError,
/// naming
/// --bind_core_list, for anything else, a range that runs backwards, and a core that stands there twice.
std::vector<int> parse_core_list(const std::string& text);

/// Gives each rank cores.size() / num_ranks neighbouring cores; a rest stays unused, so that all ranks are
/// equally fast. Throws UsageError where there are fewer cores than ranks.
std::vector<std::vector<int>> share_cores(const std::vector<int>& cores, int num_ranks);

}  // namespace deepspeed::launcher
