// What happens between the first constructor and the end of a zero::Init, equally on each rank:
//
// 1. Each tensor made by an operator of the thread is noted (note_birth) if it may become a parameter, and
//    its bytes are counted.
// 2. Before an operator takes more memory, make_room() checks which newborns have become parameters, and
//    partitions the oldest until the rest fits the limit. All ranks decide by the same sizes, so they reach
//    the same collectives.
// 3. An operator that uses a partitioned parameter gathers it (make_whole). The parameter counts as whole
//    until it is its turn to be partitioned again.
// 4. hand_over() partitions the rest and gives all to a GatherPool.
//
// NewParameter::partition() sends rank 0's values, keeps this rank's part and arms the tensor. An operator
// that then uses it calls begin_use(), which asks the Construction to make it whole. It stays whole for later
// operators and pointers until the Construction's next make_room() calls release(), which makes rank 0's
// values the shards again. Nothing of this may change what the constructors compute or draw, so each function
// of NewParameter runs OutsideOfConstruction.
#include "deepspeed/zero/construction/construction.h"

#include <algorithm>
#include <limits>
#include <unordered_set>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/base/log.h"
#include "deepspeed/base/message.h"
#include "deepspeed/comm/on_all_ranks.h"
#include "deepspeed/comm/watch/call_subject.h"

namespace deepspeed::zero {
namespace {

// Separates work on values from the running constructor: no autograd, no inference mode, not seen by the
// Construction.
struct OutsideOfConstruction {
  ConstructionPause pause;
  c10::InferenceMode normal{false};
  c10::NoGradGuard no_grad;
};

// Each newborn not yet checked takes an entry, so tiny tensors count as this many bytes.
constexpr int64_t kLeastBytesOfABirth = 1024;

std::shared_ptr<NewParameter> new_parameter_of(const at::Tensor& tensor) {
  return std::dynamic_pointer_cast<NewParameter>(record_of(tensor));
}

bool may_become_a_parameter(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != at::kStrided || !tensor.has_storage()) return false;
  const at::ScalarType dtype = tensor.scalar_type();
  const bool is_float = dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
  return is_float && !tensor.is_meta() && !tensor.is_inference();
}

bool is_whole_parameter(const at::Tensor& tensor) {
  return tensor.requires_grad() && tensor.is_leaf() && tensor.numel() > 0 &&
         tensor.storage().use_count() == 1 && !record_of(tensor);
}

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
  // If the whole is the shard, writes are already there. Other holders of this shard still need rank 0's
  // values.
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
                      "partitioned it since; make it again from the parameter");
  }
  if (!construction->is_of_this_thread()) {
    raise<UsageError>(name_, ": ", op,
                      " uses it on another thread than that of the zero::Init, which is still active; use it "
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
  return located(
      name_,
      " is partitioned, and its data was read without an operator that could gather it; read it inside "
      "zero::GatheredParameters, or let more parameters stay whole (InitArguments::max_whole_bytes)");
}

Construction::Construction(ZeroGroups ranks, const ConstructionOptions& options)
    : ranks_(std::move(ranks)), options_(options) {
  const bool is_there = options_.home.place == ParamHome::kHost && options_.device.is_cpu();
  if (options_.home.place == ParamHome::kDevice || is_there) return;
  comm::on_all_ranks(ranks_.data, "making a place for the parameters", [&] { home_.emplace(options_.home); });
}

at::TensorOptions Construction::shard_options(const at::Tensor& param) const {
  return at::TensorOptions(options_.device).dtype(options_.dtype.value_or(param.scalar_type()));
}

std::shared_ptr<Shard> Construction::make_place(const std::string& name, const at::Tensor& param) {
  if (!home_) return nullptr;
  const ConstructionPause pause;
  const NamedTensor on_device{name, at::empty({0}, options_.device)};
  const ShardLayout layout({param.numel()}, ranks_.shard.size(), 0);
  const auto dtype = c10::typeMetaToScalarType(shard_options(param).dtype());
  return home_->make_group({on_device}, layout, dtype).shards.front();
}

void Construction::note_birth(const at::Tensor& tensor) {
  if (!may_become_a_parameter(tensor)) return;
  newborns_.emplace_back(tensor.getIntrusivePtr());
  whole_bytes_ += std::max<int64_t>(static_cast<int64_t>(tensor.nbytes()), kLeastBytesOfABirth);
}

std::vector<at::Tensor> Construction::whole_newborns() {
  std::vector<at::Tensor> params;
  std::unordered_set<const at::TensorImpl*> seen;  // an operator may return its argument
  std::erase_if(newborns_, [&](const WeakTensor& weak) {
    auto impl = weak.lock();
    if (!impl || !seen.insert(impl.get()).second) return true;
    at::Tensor tensor(std::move(impl));
    if (is_whole_parameter(tensor)) params.push_back(std::move(tensor));
    return false;
  });
  return params;
}

void Construction::make_room() {
  if (whole_bytes_ > options_.max_whole_bytes) keep_limit(options_.max_whole_bytes, /*spare_newest=*/true);
}

void Construction::keep_limit(int64_t max_whole_bytes, bool spare_newest) {
  // The newest tensor is spared, as its initialiser is probably about to run.
  const auto newest = newborns_.empty() ? nullptr : newborns_.back()._unsafe_get_target();
  std::vector<at::Tensor> born = whole_newborns();
  whole_bytes_ = 0;
  num_left_whole_ = std::erase_if(born, [&](const at::Tensor& param) { return stays_whole(param); });
  for (const at::Tensor& param : born) whole_bytes_ += static_cast<int64_t>(param.nbytes());
  std::erase_if(whole_again_, [&](const std::weak_ptr<NewParameter>& weak) {
    const auto param = weak.lock();
    if (!param || !param->is_whole()) return true;
    whole_bytes_ += param->bytes();
    return false;
  });
  for (at::Tensor& param : born) {
    if (whole_bytes_ <= max_whole_bytes) return;
    if (spare_newest && param.unsafeGetTensorImpl() == newest) continue;
    whole_bytes_ -= static_cast<int64_t>(param.nbytes());
    partition(param);
    param.reset();
  }
  for (const auto& weak : whole_again_) {
    if (whole_bytes_ <= max_whole_bytes) return;
    const auto param = weak.lock();
    if (!param || param->is_in_use()) continue;
    whole_bytes_ -= param->bytes();
    param->release();
  }
}

void Construction::partition(const at::Tensor& param) {
  std::string name = message("parameter ", num_params_, " of zero::Init, of sizes ", c10::str(param.sizes()));
  ++num_params_;
  auto place = make_place(name, param);
  NewParameter::partition(param, std::move(name), ranks_, shard_options(param), std::move(place),
                          weak_from_this());
  partitioned_.emplace_back(param.getIntrusivePtr());
}

void Construction::make_whole(NewParameter& param) {
  if (param.is_whole()) return;
  make_room();
  param.gather();
  whole_again_.push_back(param.weak_from_this());
  whole_bytes_ += param.bytes();
}

void Construction::partition_if_born_here(const at::Tensor& tensor) {
  const auto is_it = [&](const WeakTensor& weak) {
    return !weak.expired() && weak._unsafe_get_target() == tensor.unsafeGetTensorImpl();
  };
  if (!tensor.defined() || std::none_of(newborns_.begin(), newborns_.end(), is_it)) return;
  if (is_whole_parameter(tensor) && !stays_whole(tensor)) partition(tensor);
}

std::vector<at::Tensor> Construction::partitioned() const {
  std::vector<at::Tensor> params;
  std::unordered_set<const at::TensorImpl*> seen;
  for (const auto* tensors : {&partitioned_, &newborns_}) {
    for (const WeakTensor& weak : *tensors) {
      auto impl = weak.lock();
      if (!impl || !seen.insert(impl.get()).second) continue;
      at::Tensor tensor(std::move(impl));
      // A newborn view of a parameter may be all that is left of it.
      if (new_parameter_of(tensor) && tensor.is_leaf() && tensor.requires_grad()) params.push_back(tensor);
    }
  }
  return params;
}

void Construction::give_back_all_but(const std::vector<NamedTensor>& kept) {
  std::unordered_set<const at::TensorImpl*> keys;
  for (const NamedTensor& param : kept) keys.insert(param.tensor.unsafeGetTensorImpl());
  for (const at::Tensor& tensor : partitioned()) {
    if (keys.contains(tensor.unsafeGetTensorImpl())) continue;
    tensor.set_data(new_parameter_of(tensor)->values().view(tensor.sizes()));
  }
}

// Fills the shard with NaN, which stays until the parameter gets values.
void Construction::hand_over_unset(GatherPool& pool, const at::Tensor& tensor, const std::string& name) {
  const int64_t numel = shard_numel(tensor.numel(), ranks_.shard.size());
  const at::Tensor values =
      at::full({numel}, std::numeric_limits<double>::quiet_NaN(), shard_options(tensor));
  auto shard = make_place(name, tensor);
  if (shard) {
    shard->write(values);
  } else {
    shard = std::make_shared<MemoryShard>(values);
  }
  pool.partition(tensor, name, std::move(shard), options_.device);
}

void Construction::hand_over(GatherPool& pool, const at::Tensor& tensor, const std::string& name) const {
  const auto param = new_parameter_of(tensor);
  if (param->is_held()) {
    raise<UsageError>(name,
                      " is inside a zero::GatheredParameters at the end of the zero::Init; end that first");
  }
  param->release();
  pool.partition(tensor, name, param->shard(), options_.device);
}

std::shared_ptr<GatherPool> Construction::make_pool() const {
  GatherPoolOptions options = options_.pool;
  options.is_provisional = true;
  options.all_ranks = ranks_.data;
  if (options.keys.mics_hierarchical_params_gather) options.nodes = {ranks_.node, ranks_.across_nodes};
  return std::make_shared<GatherPool>(ranks_.shard, options);
}

void Construction::hand_over() {
  const auto pool = make_pool();
  keep_limit(0, /*spare_newest=*/false);
  warn_of_whole_parameters();
  std::unordered_set<const StorageRecord*> done;
  for (const at::Tensor& tensor : partitioned()) {
    const auto param = new_parameter_of(tensor);
    // A second tensor over the old data gets an error when it is used.
    if (done.insert(param.get()).second) hand_over(*pool, tensor, param->name());
  }
}

void Construction::warn_of_whole_parameters() const {
  if (num_left_whole_ == 0 || ranks_.data.rank() != 0) return;
  log::warning("[zero.Init] parameters that are marked as parts of layers, ", num_left_whole_,
               " of them, stay whole until initialize(), since other ranks have other parts; pass mpu to ",
               "zero.Init, which partitions them over the ranks that hold them");
}

void Construction::hand_over(const std::vector<NamedTensor>& params) {
  const auto pool = make_pool();
  give_back_all_but(params);
  num_left_whole_ = 0;
  for (const NamedTensor& param : params) {
    const at::Tensor& tensor = param.tensor;
    if (tensor.numel() == 0) continue;
    if (!record_of(tensor) && stays_whole(tensor)) {
      ++num_left_whole_;
    } else if (tensor.is_meta()) {
      hand_over_unset(*pool, tensor, param.name);
    } else if (new_parameter_of(tensor)) {
      hand_over(*pool, tensor, param.name);
    } else if (may_become_a_parameter(tensor) && !record_of(tensor)) {
      partition(tensor);
      hand_over(*pool, tensor, param.name);
    }
  }
  warn_of_whole_parameters();
}

}  // namespace deepspeed::zero
