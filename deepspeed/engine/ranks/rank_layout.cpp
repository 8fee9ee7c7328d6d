#include "deepspeed/engine/ranks/rank_layout.h"

#include <numeric>

namespace deepspeed {

RankLayout data_parallel_layout(int num_ranks, int rank) {
  RankLayout layout{std::vector<int>(num_ranks), {rank}};
  std::iota(layout.data.begin(), layout.data.end(), 0);
  return layout;
}

}  // namespace deepspeed
