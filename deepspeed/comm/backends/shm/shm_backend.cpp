#include "deepspeed/comm/backends/shm/shm_backend.h"

#include <optional>
#include <utility>

#include "deepspeed/base/hash.h"

namespace deepspeed::comm {
namespace {

bool is_dense(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.is_contiguous() && tensor.numel() > 0;
}

at::Tensor flat_bytes(const at::Tensor& tensor) { return tensor.detach().view({-1}).view(at::kByte); }

std::optional<ReduceOp> own_op(const c10d::ReduceOp& op) {
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAvg;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::BAND:
      return ReduceOp::kBand;
    case c10d::ReduceOp::BOR:
      return ReduceOp::kBor;
    case c10d::ReduceOp::BXOR:
      return ReduceOp::kBxor;
    default:
      return std::nullopt;
  }
}

// Hashes everything that must be the same on ranks that meet.
uint64_t fingerprint_of(c10d::OpType type, const at::Tensor& tensor, int64_t detail) {
  Hash hash;
  hash.add(static_cast<uint64_t>(type));
  hash.add(static_cast<uint64_t>(tensor.defined() ? tensor.nbytes() : 0));
  hash.add(static_cast<uint64_t>(tensor.defined() ? tensor.scalar_type() : at::kByte));
  hash.add(static_cast<uint64_t>(detail));
  return hash.value();
}

std::optional<ReduceOp> shared_op(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const auto own = own_op(op);
  return own && is_dense(tensor) && SharedExchange::can_reduce(tensor.scalar_type(), *own) ? own
                                                                                           : std::nullopt;
}

}  // namespace

ShmBackend::ShmBackend(c10::intrusive_ptr<c10d::Backend> gloo, std::unique_ptr<SharedExchange> exchange)
    : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)), exchange_(std::move(exchange)) {}

void ShmBackend::abort() {
  exchange_->abort();
  gloo_->abort();
}

ShmBackend::WorkPtr ShmBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const auto op = tensors.size() == 1 ? shared_op(tensors[0], options.reduceOp) : std::nullopt;
  if (!op) return gloo_->allreduce(tensors, options);
  return exchange_->all_reduce(
      tensors[0].detach(), *op,
      fingerprint_of(c10d::OpType::ALLREDUCE, tensors[0], static_cast<int64_t>(*op)));
}

ShmBackend::WorkPtr ShmBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  if (tensors.size() != 1 || !is_dense(tensors[0])) return gloo_->broadcast(tensors, options);
  return exchange_->broadcast(flat_bytes(tensors[0]), static_cast<int>(options.rootRank),
                              fingerprint_of(c10d::OpType::BROADCAST, tensors[0], options.rootRank));
}

ShmBackend::WorkPtr ShmBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::AllgatherOptions& options) {
  if (!is_dense(output) || !is_dense(input) ||
      output.nbytes() != input.nbytes() * static_cast<size_t>(getSize()))
    return gloo_->_allgather_base(output, input, options);
  return exchange_->all_gather(flat_bytes(output), flat_bytes(input),
                               fingerprint_of(c10d::OpType::_ALLGATHER_BASE, input, 0));
}

ShmBackend::WorkPtr ShmBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                     const c10d::ReduceScatterOptions& options) {
  const auto op = shared_op(input, options.reduceOp);
  if (!op || !is_dense(output) || input.nbytes() != output.nbytes() * static_cast<size_t>(getSize()) ||
      output.scalar_type() != input.scalar_type())
    return gloo_->_reduce_scatter_base(output, input, options);
  return exchange_->reduce_scatter(
      output.detach(), input.detach(), *op,
      fingerprint_of(c10d::OpType::_REDUCE_SCATTER_BASE, input, static_cast<int64_t>(*op)));
}

ShmBackend::WorkPtr ShmBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                              std::vector<int64_t>& output_sizes,
                                              std::vector<int64_t>& input_sizes,
                                              const c10d::AllToAllOptions& options) {
  if (!output_sizes.empty() || !input_sizes.empty() || !is_dense(output) || !is_dense(input) ||
      output.nbytes() != input.nbytes() || input.nbytes() % static_cast<size_t>(getSize()) != 0)
    return gloo_->alltoall_base(output, input, output_sizes, input_sizes, options);
  return exchange_->all_to_all(flat_bytes(output), flat_bytes(input),
                               fingerprint_of(c10d::OpType::ALLTOALL_BASE, input, 0));
}

ShmBackend::WorkPtr ShmBackend::barrier(const c10d::BarrierOptions&) {
  return exchange_->barrier(fingerprint_of(c10d::OpType::BARRIER, {}, 0));
}

}  // namespace deepspeed::comm
