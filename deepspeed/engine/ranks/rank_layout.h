// Which ranks of a world this one trains what with: pure data, of which the groups of an engine are made.
#pragma once

#include <vector>

namespace deepspeed {

/// Global ranks, ascending, with this one among them.
struct RankLayout {
  std::vector<int> data;              // ranks that hold the same parameters and train them on other data
  std::vector<int> model;             // ranks that hold one copy of the model together
  int num_stages = 1;                 // of how many parts, one behind another, that copy is made
  bool slices_are_neighbours = true;  // in `model`: the ranks of a stage, else the stages of a slice
};

/// Returns the layout of a rank where all `num_ranks` hold the whole model.
RankLayout data_parallel_layout(int num_ranks, int rank);

}  // namespace deepspeed
