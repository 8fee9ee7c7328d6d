#include "deepspeed/engine/deferred_masters.h"

#include <algorithm>

#include <ATen/ops/empty.h>

namespace deepspeed {
namespace {

constexpr int64_t kWrittenNumel = int64_t{1} << 22;  // of a piece: 16 MiB

const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

}  // namespace

zero::GroupState DeferredMasters::read(size_t group, const Interval& part) {
  if (!optimizer_.makes_masters_of_halves()) {
    zero::GroupState own = optimizer_.state(group, part);
    own.master = own.master.to(at::kFloat);
    return own;
  }
  zero::GroupState own = optimizer_.states_beside_masters(group, part);
  own.master = at::empty({part.numel()}, at::TensorOptions().dtype(at::kFloat).device(at::kMeta));
  places_->emplace(storage_of(own.master), Place{own.master, group, part.begin});
  return own;
}

checkpoint::TensorStream DeferredMasters::stream() const {
  return [&optimizer = optimizer_, places = places_](const at::Tensor& deferred,
                                                     const checkpoint::PieceSink& sink) {
    const Place& place = places->at(storage_of(deferred));
    const int64_t first = place.begin + deferred.storage_offset(), end = first + deferred.numel();
    for (int64_t begin = first; begin < end; begin += kWrittenNumel) {
      const Interval piece{begin, std::min(begin + kWrittenNumel, end)};
      const at::Tensor masters = optimizer.state(place.group, piece).master.cpu().to(at::kFloat).contiguous();
      sink(masters.const_data_ptr(), masters.nbytes());
    }
  };
}

}  // namespace deepspeed
