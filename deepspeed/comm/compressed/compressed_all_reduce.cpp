// Computes a mean in two steps. Each rank adds its earlier compression errors to its values, compresses them,
// and sends chunk r to rank r (all-to-all). Rank r averages the chunks, adds its own earlier errors,
// compresses the mean, and sends it to all ranks (all-gather).
#include "deepspeed/comm/compressed/compressed_all_reduce.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "deepspeed/kernels/sign_compression.h"

namespace deepspeed::comm {
namespace {

int64_t chunk_of(int64_t numel, int ranks) {
  const int64_t blocks = (numel + kernels::kSignBlock - 1) / kernels::kSignBlock;
  return (blocks + ranks - 1) / ranks * kernels::kSignBlock;
}

at::Tensor chunk_at(const at::Tensor& chunks, int64_t index, int64_t size) {
  return chunks.narrow(0, index * size, size);
}

}  // namespace

CompressedAllReduce::CompressedAllReduce(ProcessGroup group, int64_t numel)
    : group_(std::move(group)), numel_(numel), chunk_(chunk_of(numel, group_.size())) {}

void CompressedAllReduce::mean(const at::Tensor& values) {
  const int ranks = group_.size();
  if (ranks == 1 || numel_ == 0) return;
  // The errors may have been loaded from a file, to another device.
  if (worker_error_.defined() && worker_error_.device() != values.device()) {
    worker_error_ = worker_error_.to(values.device());
    server_error_ = server_error_.to(values.device());
  }
  const bool is_padded = ranks * chunk_ != numel_;
  const at::Tensor padded = is_padded ? at::constant_pad_nd(values, {0, ranks * chunk_ - numel_}) : values;
  if (!worker_error_.defined()) {
    worker_error_ = at::zeros_like(padded);
    server_error_ = at::zeros({chunk_}, values.options());
  }
  const int64_t bytes = kernels::sign_bytes(chunk_);
  const at::Tensor sent = at::empty({ranks * bytes}, values.options().dtype(at::kByte));
  const at::Tensor received = at::empty_like(sent);
  for (int rank = 0; rank < ranks; ++rank) {
    kernels::compress_signs(chunk_at(padded, rank, chunk_), chunk_at(worker_error_, rank, chunk_),
                            chunk_at(sent, rank, bytes));
  }
  // Padding is not data, so it must not leave errors.
  if (is_padded) worker_error_.narrow(0, numel_, worker_error_.numel() - numel_).zero_();
  group_.all_to_all(received, sent);
  const at::Tensor own = at::zeros({chunk_}, values.options());
  for (int rank = 0; rank < ranks; ++rank) kernels::add_signs(chunk_at(received, rank, bytes), own);
  own.div_(ranks);
  const at::Tensor packed = chunk_at(sent, 0, bytes);
  kernels::compress_signs(own, server_error_, packed);
  group_.all_gather(received, packed);
  padded.zero_();
  for (int rank = 0; rank < ranks; ++rank)
    kernels::add_signs(chunk_at(received, rank, bytes), chunk_at(padded, rank, chunk_));
  if (is_padded) values.copy_(padded.narrow(0, 0, numel_));
}

bool CompressedAllReduce::load_errors(const at::Tensor& worker, const at::Tensor& server) {
  reset();
  const auto fits = [](const at::Tensor& error, int64_t numel) {
    return error.defined() && error.dim() == 1 && error.numel() == numel && error.scalar_type() == at::kFloat;
  };
  if (!fits(worker, group_.size() * chunk_) || !fits(server, chunk_)) return false;
  worker_error_ = worker.clone();
  server_error_ = server.clone();
  return true;
}

void CompressedAllReduce::reset() {
  worker_error_.reset();
  server_error_.reset();
}

int64_t CompressedAllReduce::bytes() const {
  return worker_error_.defined() ? int64_t(worker_error_.nbytes() + server_error_.nbytes()) : 0;
}

int64_t CompressedAllReduce::sent_bytes() const { return 2 * kernels::sign_bytes(chunk_); }

}  // namespace deepspeed::comm
