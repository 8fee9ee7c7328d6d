// As configured, a tensor is cut to this rank's part, then copied into a slot of a buffer or to the host.
// unpack() gathers the parts of all ranks, whose checksums must be equal.
#include "deepspeed/activation/keep/input_store.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "deepspeed/activation/keep/activation_meter.h"
#include "deepspeed/activation/keep/host_copy.h"
#include "deepspeed/base/hash.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/group/held_values.h"
#include "deepspeed/device/accelerator/host_memory.h"
#include "deepspeed/device/streams/stream_event.h"
#include "deepspeed/zero/storage/storage_record.h"

namespace deepspeed::activation {
namespace {

/// Returns the elements of a dense tensor in memory order, as a view, (numel). The ranks' parts then form a
/// whole with the same strides.
at::Tensor flat_of(const at::Tensor& tensor) { return tensor.as_strided({tensor.numel()}, {1}); }

/// Sums the bits of a tensor in a few intervals, while the device computes. Sums are equal if the elements
/// and their order are, NaN included.
class Checksum {
 public:
  /// flat: dense, one dimension.
  explicit Checksum(at::Tensor flat) {
    constexpr int64_t kWord = 8, kIntervals = 64;
    if (flat.storage_offset() * flat.element_size() % kWord != 0) flat = flat.clone();
    const at::Tensor bytes = flat.view(at::kByte);
    const int64_t count = bytes.numel() / kWord, size = count / kIntervals, whole = size * kIntervals;
    at::Tensor last = at::zeros({kWord}, bytes.options());
    last.slice(0, 0, bytes.numel() - count * kWord).copy_(bytes.slice(0, count * kWord));
    const at::Tensor words = bytes.slice(0, 0, count * kWord).view(at::kLong);
    const at::Tensor sums = words.slice(0, 0, whole).view({kIntervals, size}).sum(1);
    const at::Tensor all = at::cat({sums, words.slice(0, whole), last.view(at::kLong)});
    if (all.is_cpu()) {
      host_ = all;
    } else {
      host_ = device::empty_host_from_pool(all.numel(), at::kLong, /*pin=*/true);
      host_.copy_(all, /*non_blocking=*/true);
      copied_ = device::StreamEvent(all.device());
    }
  }
  uint64_t value() const {
    copied_.wait();
    Hash hash;
    for (int64_t i = 0; i < host_.numel(); ++i)
      hash.add(static_cast<uint64_t>(host_.const_data_ptr<int64_t>()[i]));
    return hash.value() | 1;  // 0 means that there is no value
  }

 private:
  at::Tensor host_;
  device::StreamEvent copied_;
};

/// Holds a tensor on the device, on the host or in a buffer slot.
class Keeper {
 public:
  Keeper(const at::Tensor& tensor, bool on_host) {
    if (on_host && !tensor.is_cpu()) {
      on_host_.emplace(tensor);
    } else {
      tensor_ = tensor;
      counted_.emplace(tensor_);
    }
  }
  explicit Keeper(std::unique_ptr<SlotBuffers::Slot> slot)
      : slot_(std::move(slot)), tensor_(slot_->tensor()), counted_(tensor_) {}

  at::Tensor get() { return on_host_ ? on_host_->fetch() : tensor_; }

 private:
  std::unique_ptr<SlotBuffers::Slot> slot_;
  at::Tensor tensor_;
  std::optional<CountedTensor> counted_;
  std::optional<HostCopy> on_host_;
};

class OnHost : public autograd::PackedTensor {
 public:
  explicit OnHost(const at::Tensor& tensor) : copy_(tensor) {}
  at::Tensor unpack() override { return copy_.fetch(); }

 private:
  HostCopy copy_;
};

/// Holds this rank's part of a tensor, and gathers the group's parts.
class Partitioned : public autograd::PackedTensor {
 public:
  Partitioned(const at::Tensor& whole, size_t place, const std::string& region,
              const Configuration& configuration)
      : group_(configuration.model_parallel_group),
        what_(message("partition_activations: the checksum of input ", place, " of ", region,
                      ", which all model-parallel ranks must give alike,")),
        sizes_(whole.sizes().vec()),
        strides_(whole.strides().vec()),
        keeper_(keep(own_part(whole), place, configuration)) {
    if (configuration.ranks() > 1) checksum_.emplace(flat_of(whole));
  }

  at::Tensor unpack() override {
    const at::NoGradGuard no_grad;
    const at::Tensor part = keeper_.get();
    if (!group_) return part.as_strided(sizes_, strides_, part.storage_offset());
    const at::Tensor whole = at::empty({part.numel() * group_.size()}, part.options());
    checked_group().all_gather(whole, part.contiguous());
    return whole.as_strided(sizes_, strides_);
  }

 private:
  /// Returns the model-parallel group, made to compare checksums. Its next collective fails, with an error,
  /// on ranks whose inputs differ.
  comm::ProcessGroup checked_group() const {
    if (!checksum_) return group_;
    const uint64_t value = checksum_->value();
    const auto held = std::make_shared<comm::CurrentValues>();
    held->set({value, [value, what = what_] { return comm::NamedTexts{{what, std::to_string(value)}}; }});
    return group_.holding(held);
  }
  /// Returns a copy of this rank's part, so that the whole can be freed. All parts have ceil(numel / ranks)
  /// elements; the last are padded.
  at::Tensor own_part(const at::Tensor& whole) const {
    const int64_t ranks = group_ ? group_.size() : 1, rank = group_ ? group_.rank() : 0;
    const at::Tensor flat = flat_of(whole);
    const int64_t size = (flat.numel() + ranks - 1) / ranks;
    const int64_t begin = std::min(rank * size, flat.numel()), end = std::min(begin + size, flat.numel());
    if (end - begin == size) return flat.slice(0, begin, end).clone();
    at::Tensor part = at::zeros({size}, flat.options());
    part.slice(0, 0, end - begin).copy_(flat.slice(0, begin, end));
    return part;
  }
  static Keeper keep(const at::Tensor& part, size_t place, const Configuration& configuration) {
    const bool on_host = configuration.options.checkpoint_in_cpu && !part.is_cpu();
    if (configuration.options.contiguous_checkpointing && !on_host) {
      return Keeper(SlotBuffers::keep(configuration.buffers, place, part));
    }
    return Keeper(part, on_host);
  }

  comm::ProcessGroup group_;
  std::string what_;
  std::optional<Checksum> checksum_;
  std::vector<int64_t> sizes_, strides_;
  Keeper keeper_;
};

}  // namespace

std::unique_ptr<autograd::PackedTensor> InputStore::pack(const at::Tensor& tensor) {
  const size_t place = place_++;
  const auto& options = configuration_->options;
  const bool is_activation = tensor.is_floating_point() && tensor.numel() >= configuration_->ranks() &&
                             tensor.numel() > 0 && tensor.has_storage() &&
                             tensor.is_non_overlapping_and_dense() && !zero::record_of(tensor);
  if (is_activation && options.partition_activations) {
    return std::make_unique<Partitioned>(tensor.detach(), place, region_, *configuration_);
  }
  if (is_activation && options.checkpoint_in_cpu && !tensor.is_cpu()) return std::make_unique<OnHost>(tensor);
  return keep_in_place(tensor);
}

bool InputStore::takes_leaf(const at::TensorImpl*) {
  const auto& options = configuration_->options;
  return options.partition_activations || options.checkpoint_in_cpu;
}

}  // namespace deepspeed::activation
