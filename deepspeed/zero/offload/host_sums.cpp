#include "deepspeed/zero/offload/host_sums.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "deepspeed/device/accelerator/host_memory.h"

namespace deepspeed::zero {

at::Tensor HostSums::make(int64_t numel, at::ScalarType dtype) const {
  return device::empty_host(numel, dtype, pin_memory_).zero_();
}

device::StreamEvent HostSums::take(size_t group, const at::Tensor& kept, const Interval& place,
                                   const at::Tensor& piece, bool adds) {
  // At most one summand of an element is in flight, so sums are made in the order of the reductions.
  wait_for(group, place);
  Arrival arrival{group, place, {}, kept.narrow(0, place.begin, place.numel()), {}};
  if (adds) arrival.summand = device::empty_host_from_pool(piece.numel(), piece.scalar_type(), pin_memory_);
  arrival.copied = stream_.copy(adds ? arrival.summand : arrival.kept, piece);
  arrivals_.push_back(std::move(arrival));
  return stream_.now();
}

void HostSums::settle(const Arrival& arrival) {
  arrival.copied.wait();
  if (arrival.summand.defined()) arrival.kept.add_(arrival.summand);
}

std::function<void()> HostSums::hand_over(size_t group, const Interval& part) {
  const auto stays = [&](const Arrival& arrival) {
    return arrival.group != group || intersect(arrival.place, part).empty();
  };
  const auto first = std::stable_partition(arrivals_.begin(), arrivals_.end(), stays);
  const auto given = std::make_shared<std::deque<Arrival>>(std::make_move_iterator(first),
                                                           std::make_move_iterator(arrivals_.end()));
  arrivals_.erase(first, arrivals_.end());
  return [given] {
    for (const Arrival& arrival : *given) settle(arrival);
  };
}

void HostSums::wait_for_all() {
  for (const Arrival& arrival : arrivals_) settle(arrival);
  arrivals_.clear();
}

}  // namespace deepspeed::zero
