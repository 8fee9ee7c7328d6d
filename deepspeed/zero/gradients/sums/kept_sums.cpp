#include "deepspeed/zero/gradients/sums/kept_sums.h"

#include <cmath>
#include <utility>

#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <c10/core/ScalarTypeToTypeMeta.h>

#include "deepspeed/device/host_pool/idle_memory.h"
#include "deepspeed/tensor/scaling.h"
#include "deepspeed/zero/gradients/dense_gradient.h"

namespace deepspeed::zero {
namespace {

/// Returns factor * piece, in `dtype` if that is wider and the product is rounded. May change the piece.
at::Tensor scaled_piece(const at::Tensor& piece, double factor, at::ScalarType dtype) {
  int exponent = 0;
  const bool is_exact = std::frexp(factor, &exponent) == 0.5;  // a power of two
  const bool widens = c10::promoteTypes(piece.scalar_type(), dtype) != piece.scalar_type();
  const at::Tensor product = widens && !is_exact ? piece.to(dtype) : piece;
  scale(product, factor);
  return product;
}

// Computes own = factor * piece, or += if `adds`. May change the piece.
void write_piece(const at::Tensor& own, const at::Tensor& piece, double factor, bool adds) {
  if (!adds && own.scalar_type() == piece.scalar_type()) return copy_scaled(own, piece, factor);
  const at::Tensor product = scaled_piece(piece, factor, own.scalar_type());
  adds ? own.add_(product) : own.copy_(product);
}

}  // namespace

KeptSums::KeptSums(std::vector<Interval> owned, const std::vector<at::TensorOptions>& options,
                   std::unique_ptr<HostSums> on_host, ReplicaSum replicas)
    : owned_(std::move(owned)), on_host_(std::move(on_host)), replicas_(std::move(replicas)) {
  for (size_t group = 0; group < owned_.size(); ++group) {
    const int64_t numel = owned_[group].numel();
    own_.push_back(on_host_ ? on_host_->make(numel, c10::typeMetaToScalarType(options[group].dtype()))
                            : at::zeros({numel}, options[group]));
    device::lend_memory(own_.back());
  }
}

device::StreamEvent KeptSums::take(size_t group, const Interval& place, const at::Tensor& piece,
                                   const Averaging& averaging) {
  if (has_all_replicas_) reopen_replicas();
  if (on_host_) {
    const at::Tensor product = scaled_piece(piece, averaging.after, own_[group].scalar_type());
    return on_host_->take(group, own_[group], place, product, !is_empty_);
  }
  const at::Tensor own = own_[group].narrow(0, place.begin, place.numel());
  device::fetch_memory(own);
  write_piece(own, piece, averaging.after, !is_empty_);
  return {};
}

at::Tensor KeptSums::place_for(size_t group, const Interval& place, at::ScalarType dtype) const {
  if (on_host_ || !is_empty_ || has_all_replicas_ || own_[group].scalar_type() != dtype) return {};
  const at::Tensor own = own_[group].narrow(0, place.begin, place.numel());
  device::fetch_memory(own);
  return own;
}

void KeptSums::end_reduction(const Averaging& averaging) {
  is_empty_ = false;
  reduced_by_ = averaging;
}

void KeptSums::sum_replicas() {
  if (is_empty_ || has_all_replicas_ || !replicas_.is_needed()) return;
  if (on_host_) on_host_->wait_for_all();
  for (const at::Tensor& own : own_) replicas_.add_up(own);
  has_all_replicas_ = true;
}

// Another backward follows in a window whose sums already include all replicas.
void KeptSums::reopen_replicas() {
  for (const at::Tensor& own : own_) replicas_.reopen(own);
  has_all_replicas_ = false;
}

void KeptSums::clear() {
  if (on_host_) on_host_->wait_for_all();
  is_empty_ = true;
  has_all_replicas_ = false;
  for (const at::Tensor& own : own_) device::lend_memory(own);
}

void KeptSums::move_into(const WaitingSums& waiting) {
  for (size_t group = 0; group < own_.size(); ++group) {
    const at::Tensor place = waiting.flat(group).narrow(0, owned_[group].begin, owned_[group].numel());
    if (!is_empty_) place.copy_(own_[group]);
    own_[group] = place;
  }
}

// The reduction made before * after * (the sum over ranks). This is its inverse.
void KeptSums::wait_again(WaitingSums& waiting, int num_ranks) {
  if (is_empty_) return;
  const double share = num_ranks == 1 ? 1.0 : 1.0 / (reduced_by_.before * reduced_by_.after);
  for (size_t group = 0; group < own_.size(); ++group) {
    const at::Tensor& flat = waiting.flat(group);
    flat.narrow(0, 0, owned_[group].begin).zero_();
    flat.narrow(0, owned_[group].end, flat.numel() - owned_[group].end).zero_();
    scale(own_[group], share);
    waiting.keep_all(group);
  }
  is_empty_ = true;
}

at::Tensor KeptSums::part(size_t group, const Interval& part) const {
  if (on_host_) on_host_->wait_for(group, part);
  return own_[group].narrow(0, part.begin, part.numel());
}

std::function<void()> KeptSums::hand_over(size_t group, const Interval& part) {
  return on_host_->hand_over(group, part);
}

int64_t KeptSums::bytes() const { return bytes_of(own_); }

}  // namespace deepspeed::zero
