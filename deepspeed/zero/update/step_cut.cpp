#include "deepspeed/zero/update/step_cut.h"

#include <algorithm>

namespace deepspeed::zero {

std::vector<Interval> equal_pieces(int64_t numel, int64_t piece_numel) {
  constexpr int64_t kMostPieces = 4096;
  const int64_t size = std::max({int64_t{1}, piece_numel, (numel + kMostPieces - 1) / kMostPieces});
  std::vector<Interval> pieces;
  for (int64_t begin = 0; begin < numel; begin += std::min(size, numel - begin))
    pieces.push_back({begin, begin + std::min(size, numel - begin)});
  if (pieces.empty()) pieces.push_back({0, 0});
  return pieces;
}

size_t count_within(const std::vector<Interval>& pieces, double ratio) {
  int64_t total = 0, sum = 0;
  for (const Interval& piece : pieces) total += piece.numel();
  size_t count = 0;
  while (count < pieces.size() && double(sum + pieces[count].numel()) <= ratio * double(total))
    sum += pieces[count++].numel();
  return count;
}

}  // namespace deepspeed::zero
