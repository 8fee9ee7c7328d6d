// A parameter that is partitioned while its model is being built.
//
// partition() sends rank 0's values, keeps this rank's part and arms the tensor. An operator that then uses
// it calls begin_use(), which asks the Construction to make it whole. The Construction first makes room, then
// calls gather(). It stays whole for later operators and pointers until the Construction's next make_room()
// calls release(), which makes rank 0's values the shards again. Nothing here may change what the
// constructors compute or draw, so each function runs OutsideOfConstruction.
#include "deepspeed/zero/construction/new_parameter.h"

#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/watch/call_subject.h"
#include "deepspeed/zero/construction/construction.h"
#include "deepspeed/zero/construction/construction_mode.h"

namespace deepspeed::zero {
namespace {

// Separates work on values from the running constructor: no autograd, no inference mode, not seen by the
// Construction.
struct OutsideOfConstruction {
  ConstructionPause pause;
  c10::InferenceMode normal{false};
  c10::NoGradGuard no_grad;
};

}  // namespace

NewParameter::NewParameter(const at::Tensor& param, std::string name, const ZeroGroups& ranks,
                           const at::TensorOptions& sent, std::shared_ptr<Shard> place,
                           std::weak_ptr<Construction> construction)
    : name_(std::move(name)),
      ranks_(ranks),
      numel_(param.numel()),
      dtype_(param.dtype()),
      device_(param.device()),
      construction_(std::move(construction)),
      sent_(sent),
      has_place_(place != nullptr),
      shard_(std::move(place)) {}

std::shared_ptr<NewParameter> NewParameter::partition(const at::Tensor& param, std::string name,
                                                      const ZeroGroups& ranks, const at::TensorOptions& sent,
                                                      std::shared_ptr<Shard> place,
                                                      std::weak_ptr<Construction> construction) {
  const OutsideOfConstruction outside;
  std::shared_ptr<NewParameter> made(
      new NewParameter(param, std::move(name), ranks, sent, std::move(place), std::move(construction)));
  at::Tensor values = param.detach().contiguous();
  if (!param.is_contiguous()) param.set_data(values);
  made->take_shard(values.view({-1}));
  values.reset();
  made->take_id_of(param);
  arm(param, made);
  return made;
}

void NewParameter::take_shard(const at::Tensor& values) {
  const comm::CallSubject subject(name_);
  const at::Tensor sent = values.to(sent_);
  if (ranks_.data.size() > 1) ranks_.data.broadcast(sent, 0);
  const comm::ProcessGroup& shard = ranks_.shard;
  if (shard.size() == 1 && !has_place_) {
    shard_ = std::make_shared<MemoryShard>(sent);
    return;
  }
  if (!shard_) shard_ = std::make_shared<MemoryShard>(at::zeros({shard_numel(numel_, shard.size())}, sent_));
  const Interval own = shard_elements(numel_, shard.size(), shard.rank());
  shard_->write(sent.narrow(0, own.begin, own.numel()));
}

at::Tensor NewParameter::shard_to_send() const {
  const at::Tensor memory = shard_->memory();
  if (memory.defined() && memory.device() == sent_.device()) return memory;
  at::Tensor copy = at::empty({shard_->numel()}, sent_);
  shard_->read(copy);
  return copy;
}

at::Tensor NewParameter::gathered_shards() const {
  const at::Tensor own = shard_to_send();
  if (ranks_.shard.size() == 1) return own;
  const at::Tensor shards = at::empty({ranks_.shard.size() * own.numel()}, sent_);
  ranks_.shard.all_gather(shards, own);
  return shards;
}

void NewParameter::gather() {
  if (is_whole()) return;
  const OutsideOfConstruction outside;
  const comm::CallSubject subject(name_);
  whole_ = gathered_shards().to(at::TensorOptions(device_).dtype(dtype_));
  fill(whole_.mutable_data_ptr());
}

void NewParameter::release() {
  if (!is_whole()) return;
  const OutsideOfConstruction outside;
  // If it is the shard, writes are already there. Other holders of this shard still need rank 0's values.
  if (!is_its_shard() || ranks_.data.size() > 1) take_shard(whole_.narrow(0, 0, numel_));
  empty();
  whole_.reset();
}

at::Tensor NewParameter::values() {
  gather();
  const OutsideOfConstruction outside;
  return whole_.narrow(0, 0, numel_).clone();
}

Construction& NewParameter::require_construction(const std::string& op) const {
  const auto construction = construction_.lock();
  if (!construction) {
    raise<UsageError>(name_, ": ", op,
                      " uses a tensor over its data that was made before the zero::Init ended, which has "
                      "partitioned it since; make it anew from the parameter");
  }
  if (!construction->is_of_this_thread()) {
    raise<UsageError>(name_, ": ", op,
                      " uses it on another thread than that of the zero::Init, which lives still; use it "
                      "there, or end the zero::Init first");
  }
  return *construction;
}

void NewParameter::begin_use(const std::string& op, bool writes) {
  require_construction(op).make_whole(*this);
  was_written_ = was_written_ || writes;
  ++num_uses_;
}

void NewParameter::hold(bool writable) {
  Construction& construction = require_construction("zero::GatheredParameters");
  if (writable && !is_in_use()) release();  // earlier writes must survive forget_writes
  construction.make_whole(*this);
  // With one rank the data may be the shard itself, which must keep its values if writes are forgotten.
  if (writable && is_its_shard()) {
    const OutsideOfConstruction outside;
    whole_ = whole_.clone();
    fill(whole_.mutable_data_ptr());
  }
  ++num_holds_;
  if (writable) was_written_ = false;
}

void NewParameter::write_back(int modifier_rank) {
  const OutsideOfConstruction outside;
  const comm::CallSubject subject(name_);
  if (ranks_.data.size() > 1) ranks_.data.broadcast(whole_, modifier_rank);
}

void NewParameter::drop_hold(bool, bool forget_writes) noexcept {
  --num_holds_;
  if (!forget_writes || num_uses_ > 0) return;
  empty();
  whole_.reset();
}

std::string NewParameter::text_where_empty() const {
  return located(name_,
                 " is partitioned, and its data was read without an operator that could gather it; read it "
                 "inside zero::GatheredParameters, or let more stand whole (InitArguments::max_whole_bytes)");
}

}  // namespace deepspeed::zero
