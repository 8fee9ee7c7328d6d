#include "deepspeed/zero/layout/replica_sum.h"

#include <algorithm>
#include <utility>

namespace deepspeed::zero {
namespace {

constexpr int64_t kPieceOfReplicaSum = int64_t{4} << 20;  // elements copied at a time

}  // namespace

ReplicaSum::ReplicaSum(comm::ProcessGroup replica, std::optional<at::ScalarType> dtype, at::Device device)
    : replica_(std::move(replica)), dtype_(dtype), device_(device) {}

void ReplicaSum::add_up(const at::Tensor& sums) const {
  if (!is_needed() || sums.numel() == 0) return;
  const at::ScalarType own = sums.scalar_type();
  const bool stays_double = own == at::kDouble && dtype_ == at::kFloat;
  const at::ScalarType travelling = stays_double ? own : dtype_.value_or(own);
  if (travelling == own && sums.device() == device_) return replica_.all_reduce(sums);
  for (int64_t begin = 0; begin < sums.numel(); begin += kPieceOfReplicaSum) {
    const at::Tensor piece = sums.narrow(0, begin, std::min(kPieceOfReplicaSum, sums.numel() - begin));
    const at::Tensor sent = piece.to(device_, travelling);
    replica_.all_reduce(sent);
    piece.copy_(sent);
  }
}

void ReplicaSum::reopen(const at::Tensor& sums) const {
  if (is_needed() && replica_.rank() > 0) sums.zero_();
}

}  // namespace deepspeed::zero
