// The steps of a sum over N nodes of L ranks. Values are in blocks of n elements, one per owner:
//
// 1. start() quantizes the N blocks whose owners have place l on their nodes. It sends them to the rank with
//    place l on this node (all-to-all within the node).
// 2. In wait(), each rank adds the L contributions in fp32, giving a partial sum for each node.
// 3. The partial sums are quantized again and sent to the nodes that own them (all-to-all between nodes).
//    There the N partial sums are added.
//
// A rank's own contribution does not travel and is not rounded.
#include "deepspeed/zero/gradients/quantized_sum.h"

#include <algorithm>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "deepspeed/base/message.h"
#include "deepspeed/comm/group/joined_work.h"
#include "deepspeed/kernels/block_quantization.h"

namespace deepspeed::zero {
namespace {

constexpr auto kGradientCode = kernels::BlockCode::kInt4, kErrorCode = kernels::BlockCode::kInt8;

// An error's name consists of "loco.", the sum's key, and one of these.
constexpr const char *kSizes = ".sizes", *kWithin = ".within.", *kBetween = ".between.";

std::string prefix_of(size_t key) { return message("loco.", key); }

int64_t packed_bytes(int64_t numel) { return kernels::quantized_bytes(numel, kGradientCode); }

at::Tensor piece(const at::Tensor& pieces, int64_t index, int64_t size) {
  return pieces.narrow(0, index * size, size);
}

at::Tensor dequantized(const at::Tensor& packed, int64_t numel, kernels::BlockCode code) {
  const at::Tensor values = at::empty({numel}, packed.options().dtype(at::kFloat));
  kernels::dequantize_blocks(packed, values, code);
  return values;
}

}  // namespace

QuantizedSum::QuantizedSum(comm::ProcessGroup node, comm::ProcessGroup across,
                           std::optional<LocoOptions> loco)
    : node_(std::move(node)), across_(std::move(across)), loco_(loco) {}

at::Tensor QuantizedSum::block(const at::Tensor& values, int node, int place) const {
  const int64_t numel = values.numel() / (node_.size() * across_.size());
  return piece(values, int64_t{node} * node_.size() + place, numel);
}

void QuantizedSum::quantize(const at::Tensor& block, const at::Tensor& packed, Errors* errors,
                            size_t index) const {
  if (errors == nullptr) return kernels::quantize_blocks(block, packed, kGradientCode);
  at::Tensor wanted = block.to(at::kFloat);
  at::Tensor& kept = errors->packed.at(index);
  const at::Tensor before = kept.defined() ? dequantized(kept, block.numel(), kErrorCode) : at::Tensor();
  if (before.defined()) wanted = wanted + before;
  kernels::quantize_blocks(wanted, packed, kGradientCode);
  at::Tensor error = wanted - dequantized(packed, block.numel(), kGradientCode);
  if (before.defined()) error = error.mul_(1.0 - loco_->err_beta).add_(before, loco_->err_beta);
  // A non-finite gradient leaves no error behind, since its step is skipped.
  error.nan_to_num_(0, 0, 0);
  if (!kept.defined())
    kept = at::empty({kernels::quantized_bytes(block.numel(), kErrorCode)}, packed.options());
  kernels::quantize_blocks(error, kept, kErrorCode);
}

comm::Work QuantizedSum::start(const at::Tensor& values, size_t key) {
  Kept* kept = nullptr;
  const int64_t numel = values.numel() / (node_.size() * across_.size());
  if (loco_) {
    kept = &kept_[key];
    kept->block_numel = numel;
    if (kept->num_sums++ % loco_->reset_T == 0) {
      kept->within.packed.assign(size_t(node_.size() * across_.size()), {});
      kept->between.packed.assign(size_t(across_.size()), {});
    }
  }
  const int64_t bytes = packed_bytes(numel);
  at::Tensor received;
  std::vector<comm::Work> works;
  if (node_.size() > 1) {
    const at::TensorOptions options = values.options().dtype(at::kByte);
    const at::Tensor sent = at::empty({node_.size() * across_.size() * bytes}, options);
    received = at::empty_like(sent);
    for (int place = 0; place < node_.size(); ++place) {
      if (place == node_.rank()) continue;
      for (int node = 0; node < across_.size(); ++node) {
        const int64_t index = int64_t{place} * across_.size() + node;
        quantize(block(values, node, place), piece(sent, index, bytes), kept ? &kept->within : nullptr,
                 size_t(index));
      }
    }
    // The rank's own place is sent to itself but never read.
    piece(sent, node_.rank(), across_.size() * bytes).zero_();
    works.push_back(comm::joined_work({node_.start_all_to_all(received, sent)}, [sent] {}));
  }
  return comm::joined_work(std::move(works), [this, values, received, numel, kept] {
    sum_between(values, sum_within(values, received, numel), kept);
  });
}

at::Tensor QuantizedSum::sum_within(const at::Tensor& values, const at::Tensor& received,
                                    int64_t numel) const {
  const at::Tensor partial = at::empty({across_.size(), numel}, values.options().dtype(at::kFloat));
  for (int node = 0; node < across_.size(); ++node) {
    const at::Tensor sum = partial.select(0, node);
    // Terms are added in the order of their ranks.
    for (int place = 0; place < node_.size(); ++place) {
      if (place == node_.rank()) {
        place == 0 ? sum.copy_(block(values, node, place)) : sum.add_(block(values, node, place));
        continue;
      }
      const at::Tensor term = piece(received, int64_t{place} * across_.size() + node, packed_bytes(numel));
      place == 0 ? kernels::dequantize_blocks(term, sum, kGradientCode)
                 : kernels::add_quantized(term, sum, kGradientCode);
    }
  }
  return partial;
}

void QuantizedSum::sum_between(const at::Tensor& values, const at::Tensor& partial, Kept* kept) const {
  const at::Tensor own = block(values, across_.rank(), node_.rank());
  const int64_t bytes = packed_bytes(own.numel());
  if (across_.size() == 1) {
    own.copy_(partial.select(0, 0));
    return;
  }
  const at::Tensor sent = at::empty({across_.size() * bytes}, values.options().dtype(at::kByte));
  const at::Tensor received = at::empty_like(sent);
  for (int node = 0; node < across_.size(); ++node) {
    const at::Tensor packed = piece(sent, node, bytes);
    if (node == across_.rank()) {
      packed.zero_();
    } else {
      quantize(partial.select(0, node), packed, kept ? &kept->between : nullptr, size_t(node));
    }
  }
  across_.all_to_all(received, sent);
  const at::Tensor sum = at::zeros({own.numel()}, partial.options());
  for (int node = 0; node < across_.size(); ++node) {
    if (node == across_.rank()) {
      sum.add_(partial.select(0, node));
    } else {
      kernels::add_quantized(piece(received, node, bytes), sum, kGradientCode);
    }
  }
  own.copy_(sum);
}

void QuantizedSum::scale_errors(double factor) {
  if (factor == 0.0) return kept_.clear();
  for (auto& [key, kept] : kept_) {
    for (Errors* const errors : {&kept.within, &kept.between}) {
      for (at::Tensor& packed : errors->packed) {
        if (packed.defined()) kernels::scale_quantized(packed, kept.block_numel, kErrorCode, factor);
      }
    }
  }
}

NamedErrors QuantizedSum::errors() const {
  NamedErrors all;
  for (const auto& [key, kept] : kept_) {
    const std::string prefix = prefix_of(key);
    all.emplace_back(prefix + kSizes, at::tensor({kept.num_sums, kept.block_numel, int64_t{node_.size()},
                                                  int64_t{across_.size()}}));
    for (const auto& [name, errors] :
         {std::pair(kWithin, &kept.within), std::pair(kBetween, &kept.between)}) {
      for (size_t index = 0; index < errors->packed.size(); ++index) {
        if (errors->packed[index].defined())
          all.emplace_back(message(prefix, name, index), errors->packed[index]);
      }
    }
  }
  return all;
}

bool QuantizedSum::load_errors(const NamedErrors& errors, const std::vector<int64_t>& numels,
                               const at::Device& device) {
  kept_.clear();
  size_t num_taken = 0;
  const auto take = [&](const std::string& name) {
    const auto found = std::ranges::find(errors, name, &NamedErrors::value_type::first);
    if (found == errors.end()) return at::Tensor();
    ++num_taken;
    return found->second;
  };
  bool fit = true;
  for (size_t key = 0; key < numels.size(); ++key) {
    const std::string prefix = prefix_of(key);
    const at::Tensor sizes = take(prefix + kSizes);
    if (!sizes.defined()) continue;
    const at::Tensor of_run = sizes.cpu().to(at::kLong);
    fit = fit && of_run.numel() == 4 && of_run[1].item<int64_t>() == numels[key] &&
          of_run[2].item<int64_t>() == node_.size() && of_run[3].item<int64_t>() == across_.size();
    if (!fit) break;
    Kept& kept = kept_[key];
    kept.num_sums = of_run[0].item<int64_t>();
    kept.block_numel = numels[key];
    kept.within.packed.resize(size_t(node_.size() * across_.size()));
    kept.between.packed.resize(size_t(across_.size()));
    for (const auto& [name, own] : {std::pair(kWithin, &kept.within), std::pair(kBetween, &kept.between)}) {
      for (size_t index = 0; index < own->packed.size(); ++index) {
        const at::Tensor packed = take(message(prefix, name, index));
        if (!packed.defined()) continue;
        fit = fit && packed.scalar_type() == at::kByte &&
              packed.numel() == kernels::quantized_bytes(kept.block_numel, kErrorCode);
        own->packed[index] = packed.to(device, at::kByte, /*non_blocking=*/false, /*copy=*/true);
      }
    }
  }
  fit = fit && num_taken == errors.size();
  if (!fit) kept_.clear();
  return fit;
}

int64_t QuantizedSum::bytes() const {
  int64_t bytes = 0;
  for (const auto& [key, kept] : kept_) {
    for (const Errors* const errors : {&kept.within, &kept.between}) {
      for (const at::Tensor& packed : errors->packed)
        bytes += packed.defined() ? int64_t(packed.nbytes()) : 0;
    }
  }
  return bytes;
}

}  // namespace deepspeed::zero
