#include "deepspeed/engine/ranks/rank_layout.h"

#include <algorithm>
#include <numeric>

namespace deepspeed {

RankLayout data_parallel_layout(int num_ranks, int rank) {
  RankLayout layout{std::vector<int>(num_ranks), {rank}};
  std::iota(layout.data.begin(), layout.data.end(), 0);
  return layout;
}

std::vector<int> block_of(const std::vector<int>& ranks, int rank, int size) {
  const auto place = std::ranges::find(ranks, rank) - ranks.begin();
  const auto begin = ranks.begin() + place / size * size;
  return {begin, begin + size};
}

}  // namespace deepspeed
