#include "deepspeed/trial/search/rung.h"

#include <algorithm>
#include <cmath>

namespace deepspeed::trial {

Score Score::of(int64_t trial, double metric, bool smaller_is_better) {
  if (std::isnan(metric)) return {Kind::kNan, 0, trial};
  return {Kind::kNumber, smaller_is_better ? metric : -metric, trial};
}

size_t Rung::add(const Score& score) {
  const auto next = std::ranges::upper_bound(entries_, score, {}, &RungEntry::score);
  const auto place = next - entries_.begin();
  entries_.insert(next, {score, false});
  return static_cast<size_t>(place);
}

std::vector<Score> Rung::promote(int64_t divisor) {
  std::vector<Score> promoted;
  const size_t first = entries_.size() / static_cast<size_t>(divisor);
  for (size_t place = 0; place < first; ++place) {
    if (entries_[place].promoted) continue;
    promote_at(place);
    promoted.push_back(entries_[place].score);
  }
  return promoted;
}

void Rung::promote_at(size_t place) {
  entries_[place].promoted = true;
  ++num_promoted_;
}

}  // namespace deepspeed::trial
