// Gathers the shards of one or several parameters in one collective, and cuts out each parameter.
//
// The constructor starts everything. Shards in other memory are copied to the device on a separate stream.
// The collective follows them on that stream, so the caller's stream continues. take() waits and cuts one
// parameter out. One rank has nothing to send (start_alone). An all-gather receives (ranks, all shards): each
// parameter's shards are `numel_` apart, and take() copies them together. An all-reduce (start_all_reduce)
// sums each rank's shards among zeros, already in the parameters' order. A quantized all-gather sends bytes,
// each shard with its own scales, which take() turns into values.
#include "deepspeed/zero/access/gather_bucket.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

#include <ATen/ops/empty.h>

#include "deepspeed/kernels/block_quantization.h"

namespace deepspeed::zero {
namespace {

kernels::BlockCode code_of(Fetch fetch) {
  return fetch == Fetch::kFloat8AllGather ? kernels::BlockCode::kFloat8 : kernels::BlockCode::kInt8;
}

/// Views the memory as the widest possible integers: (n) -> (bytes / their size).
at::Tensor as_integers(const at::Tensor& values) {
  const size_t bytes = values.nbytes();
  if (bytes % sizeof(int64_t) == 0) return values.view(at::kLong);
  return values.view(bytes % sizeof(int32_t) == 0 ? at::kInt : at::kByte);
}

/// Copies elements between contiguous host tensors of one type. For few elements tensor views would cost more
/// than the copy, and there may be thousands of copies.
void copy_elements(const at::Tensor& from, int64_t from_begin, const at::Tensor& to, int64_t to_begin,
                   int64_t numel) {
  const size_t size = from.element_size();
  std::memcpy(static_cast<char*>(to.mutable_data_ptr()) + static_cast<size_t>(to_begin) * size,
              static_cast<const char*>(from.const_data_ptr()) + static_cast<size_t>(from_begin) * size,
              static_cast<size_t>(numel) * size);
}

}  // namespace

GatherBucket::GatherBucket(const comm::ProcessGroup& group, std::vector<std::shared_ptr<Shard>> shards,
                           at::ScalarType dtype, at::Device device, const device::SideStream& copies,
                           GatherBuffers& buffers, Fetch fetch, const comm::NodeGroups& nodes)
    : num_ranks_(group.size()),
      shards_(std::move(shards)),
      options_(at::TensorOptions().dtype(dtype).device(device)),
      copies_(copies),
      buffers_(buffers),
      fetch_(fetch) {
  for (const auto& shard : shards_) {
    begins_.push_back(numel_);
    numel_ += is_rounded(fetch) ? kernels::quantized_bytes(shard->numel(), code_of(fetch)) : shard->numel();
  }
  is_copying_ = !std::ranges::all_of(shards_, [&](const auto& shard) { return is_on_device(*shard); });
  if (num_ranks_ == 1) {
    start_alone();
  } else if (fetch == Fetch::kAllGather) {
    start_all_gather(group, nodes);
  } else {
    fetch == Fetch::kAllReduce ? start_all_reduce(group) : start_quantized_all_gather(group, nodes);
  }
}

// The current stream made the memory that the copies write. It must wait for the copies before that memory is
// freed.
GatherBucket::~GatherBucket() {
  if (!is_copying_) return;
  try {
    copies_.join();
  } catch (const std::exception&) {  // the device has failed: its next use reports it
  }
}

bool GatherBucket::is_on_device(const Shard& shard) const {
  const at::Tensor memory = shard.memory();
  return memory.defined() && memory.device() == options_.device();
}

bool GatherBucket::fits(const Shard& shard) const {
  return is_on_device(shard) && shard.dtype() == c10::typeMetaToScalarType(options_.dtype());
}

void GatherBucket::start_alone() {
  for (const auto& shard : shards_) {
    const at::Tensor memory = shard->memory();
    const bool is_on_disk = !memory.defined();
    own_.push_back(is_on_disk || fits(*shard) ? memory : buffers_.take(shard->numel(), options_));
  }
  const auto scope = is_copying_ ? copies_.enter() : device::SideStream::Scope();
  for (size_t index = 0; index < shards_.size(); ++index) {
    Shard& shard = *shards_[index];
    if (!own_[index].defined()) {
      shard.start_read();
    } else if (!fits(shard)) {
      shard.read(own_[index]);
    }
  }
}

void GatherBucket::send(const comm::ProcessGroup& group, const comm::NodeGroups& nodes) {
  work_ = nodes.has_levels() ? comm::start_all_gather_by_nodes(nodes, received_, sent_)
                             : group.start_all_gather(received_, sent_);
}

void GatherBucket::start_all_gather(const comm::ProcessGroup& group, const comm::NodeGroups& nodes) {
  const bool sends_shard = shards_.size() == 1 && fits(*shards_.front());
  sent_ = sends_shard ? shards_.front()->memory() : at::empty({numel_}, options_);
  received_ = buffers_.take(num_ranks_ * numel_, options_);
  const auto scope = is_copying_ ? copies_.enter() : device::SideStream::Scope();
  if (!sends_shard) fill_sent();
  send(group, nodes);
}

// Each rank has zeros apart from its own shards, so no bit is set on two ranks and their union is the result.
// A floating-point sum would turn -0.0 into +0.0 and change NaNs. An integer sum never carries here. NCCL has
// only sums.
void GatherBucket::start_all_reduce(const comm::ProcessGroup& group) {
  received_ = buffers_.take(num_ranks_ * numel_, options_);
  const auto scope = is_copying_ ? copies_.enter() : device::SideStream::Scope();
  received_.zero_();
  int64_t begin = 0;
  for (const auto& shard : shards_) {
    shard->read(received_.narrow(0, begin + group.rank() * shard->numel(), shard->numel()));
    begin += num_ranks_ * shard->numel();
  }
  work_ = group.start_all_reduce(as_integers(received_),
                                 received_.is_cpu() ? comm::ReduceOp::kBor : comm::ReduceOp::kSum);
}

void GatherBucket::start_quantized_all_gather(const comm::ProcessGroup& group,
                                              const comm::NodeGroups& nodes) {
  sent_ = at::empty({numel_}, options_.dtype(at::kByte));
  received_ = buffers_.take(num_ranks_ * numel_, sent_.options());
  const auto scope = is_copying_ ? copies_.enter() : device::SideStream::Scope();
  for (size_t index = 0; index < shards_.size(); ++index) {
    Shard& shard = *shards_[index];
    at::Tensor values = shard.memory();
    if (!fits(shard)) {
      values = at::empty({shard.numel()}, options_);
      shard.read(values);
    }
    const int64_t bytes = kernels::quantized_bytes(shard.numel(), code_of(fetch_));
    kernels::quantize_blocks(values, sent_.narrow(0, begins_[index], bytes), code_of(fetch_));
  }
  send(group, nodes);
}

at::Tensor GatherBucket::dequantized(size_t index) const {
  const int64_t numel = shards_[index]->numel();
  const int64_t bytes = kernels::quantized_bytes(numel, code_of(fetch_));
  const at::Tensor whole = buffers_.take(num_ranks_ * numel, options_);
  for (int64_t rank = 0; rank < num_ranks_; ++rank) {
    kernels::dequantize_blocks(received_.narrow(0, rank * numel_ + begins_[index], bytes),
                               whole.narrow(0, rank * numel, numel), code_of(fetch_));
  }
  return whole;
}

void GatherBucket::fill_sent() {
  int64_t begin = 0;
  for (const auto& shard : shards_) {
    if (sent_.is_cpu() && fits(*shard)) {
      copy_elements(shard->memory(), 0, sent_, begin, shard->numel());
    } else {
      shard->read(sent_.narrow(0, begin, shard->numel()));
    }
    begin += shard->numel();
  }
}

at::Tensor GatherBucket::take(size_t index) {
  if (is_copying_) copies_.join();
  if (num_ranks_ == 1) {
    if (own_[index].defined()) return own_[index];
    const at::Tensor values = buffers_.take(shards_[index]->numel(), options_);
    shards_[index]->read(values);
    return values;
  }
  work_.wait();
  if (is_rounded(fetch_)) return dequantized(index);
  if (shards_.size() == 1) return received_;
  const int64_t begin = begins_[index];
  const int64_t numel = shards_[index]->numel();
  // The parameter gets its own memory, since parameters of the bucket are released one by one.
  if (fetch_ == Fetch::kAllReduce) return received_.narrow(0, num_ranks_ * begin, num_ranks_ * numel).clone();
  if (received_.is_cpu()) {
    const at::Tensor whole = at::empty({num_ranks_ * numel}, options_);
    for (int rank = 0; rank < num_ranks_; ++rank)
      copy_elements(received_, rank * numel_ + begin, whole, rank * numel, numel);
    return whole;
  }
  return received_.view({num_ranks_, numel_})
      .narrow(1, begin, numel)
      .clone(at::MemoryFormat::Contiguous)
      .view({-1});
}

}  // namespace deepspeed::zero
