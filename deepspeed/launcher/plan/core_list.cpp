#include "deepspeed/launcher/plan/core_list.h"

#include <algorithm>

#include "deepspeed/base/error.h"
#include "deepspeed/launcher/args/numbers.h"

namespace deepspeed::launcher {
namespace {

constexpr int kMaxCore = 65535;

}  // namespace

std::vector<int> parse_core_list(const std::string& text) {
  std::vector<int> cores;
  for (const std::string& part : split(text, ',')) {
    const auto ends = split(part, '-');
    const auto first = parse_whole_number(ends.front());
    const auto last = parse_whole_number(ends.back());
    if (ends.size() > 2 || !first || !last || *last > kMaxCore || *first > *last) {
      raise<UsageError>("--bind_core_list: '", part, "' in '", text,
                        "', expected cores and rising ranges such as 1,3-5");
    }
    for (int core = *first; core <= *last; ++core) {
      if (std::find(cores.begin(), cores.end(), core) != cores.end()) {
        raise<UsageError>("--bind_core_list: core ", core, " stands in '", text,
                          "' more than once, expected once");
      }
      cores.push_back(core);
    }
  }
  return cores;
}

std::vector<std::vector<int>> share_cores(const std::vector<int>& cores, int num_ranks) {
  const int share = static_cast<int>(cores.size()) / num_ranks;
  if (share == 0) {
    raise<UsageError>("--bind_cores_to_rank: ", cores.size(), " cores for ", num_ranks,
                      " ranks, expected at least one each; start fewer ranks or leave the flag out");
  }
  std::vector<std::vector<int>> shares;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto begin = cores.begin() + static_cast<std::ptrdiff_t>(rank) * share;
    shares.emplace_back(begin, begin + share);
  }
  return shares;
}

}  // namespace deepspeed::launcher
