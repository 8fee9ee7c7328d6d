// 1. Forward runs with ForgetValues: each saved tensor becomes a Holder without a value. A separate node
//    (SaveInputs) saves the inputs, so that the hooks of an outer region take them.
// 2. The first Holder whose value is needed makes its Frame recompute. The inputs are unpacked (which may
//    make an outer region recompute) and the forward's state is restored. The function runs with FillHolders:
//    the i-th tensor that it saves is the value of the i-th Holder. Autograd itself keeps leaves with a
//    gradient, such as parameters, in forward and in the recomputation.
// 3. At the last Holder an exception (Finished) ends the function, and the frame drops its inputs. It keeps
//    them if the forward has not ended yet, since the function may run a backward inside its forward.
#include "deepspeed/activation/recompute/recomputation.h"

#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "deepspeed/activation/recompute/kept_results.h"
#include "deepspeed/autograd/node_handle.h"
#include "deepspeed/base/error.h"

namespace deepspeed::activation {
namespace {

using autograd::PackedTensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Saves the inputs of a region through autograd. Nothing flows back through the node.
struct SaveInputs : torch::autograd::Function<SaveInputs> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& token, const variable_list& inputs) {
    context->save_for_backward(inputs);
    return at::empty({0}, token.options());
  }
  static variable_list backward(AutogradContext*, const variable_list&) {
    raise<UsageError>("a backward came to the node that keeps a region's inputs");
  }
};

/// Stands for a saved tensor, until the recomputation provides the value.
struct Holder {
  std::unique_ptr<PackedTensor> value;
  std::vector<int64_t> sizes;
  at::ScalarType dtype;
};

/// Ends a recomputation that has everything it needs. It is not an exception of the library, so that no
/// handler catches it.
struct Finished {};

class Frame {
 public:
  explicit Frame(Region region) : region_(std::move(region)) {
    if (region_.options.keep) kept_.emplace(region_.options.keep);
  }

  KeptResults* kept() { return kept_ ? &*kept_ : nullptr; }
  const Region& region() const { return region_; }
  void save(const TensorList& inputs) {
    save_inputs_through(region_, [&] {
      const at::Tensor token = at::empty({0}).requires_grad_();
      inputs_ = SaveInputs::apply(token, inputs).grad_fn();
    });
  }
  std::shared_ptr<Holder> add_holder(const at::Tensor& tensor) {
    auto holder = std::make_shared<Holder>(Holder{nullptr, tensor.sizes().vec(), tensor.scalar_type()});
    holders_.push_back(holder);
    return holder;
  }
  at::Tensor value_of(Holder& holder) {
    const std::lock_guard lock(mutex_);
    if (!holder.value) recompute();
    if (!holder.value) raise<UsageError>(other_number(std::to_string(num_filled_) + " of"));
    return holder.value->unpack();
  }
  /// Gives the next saved tensor to the next Holder. Throws UsageError if forward saved no such tensor.
  void fill(const at::Tensor& tensor) {
    if (is_full()) raise<UsageError>(other_number("more than"));
    if (const auto holder = holders_[num_filled_].lock()) give(*holder, tensor);
    ++num_filled_;
  }
  bool is_finished() const { return is_full() && (region_.options.stop_early || !forward_ended_); }
  /// Marks that forward will save no further tensor.
  void end_forward() { forward_ended_ = true; }

 private:
  bool is_full() const { return num_filled_ == holders_.size(); }
  std::string other_number(const std::string& saved) const {
    return message("the recomputation of ", region_.options.name, " saved ", saved, " the ", holders_.size(),
                   " tensors that forward saved for backward; it must do the same each time");
  }
  void give(Holder& holder, const at::Tensor& tensor) const {
    if (tensor.sizes() != at::IntArrayRef(holder.sizes) || tensor.scalar_type() != holder.dtype) {
      raise<UsageError>("the recomputation of ", region_.options.name, " saved a tensor of ",
                        tensor.scalar_type(), " and sizes ", tensor.sizes(), " where forward saved one of ",
                        holder.dtype, " and sizes ", at::IntArrayRef(holder.sizes),
                        "; it must do the same each time");
    }
    holder.value = keep_in_place(tensor);
  }
  void recompute();
  void run(TensorList inputs);
  TensorList saved_inputs() const {
    auto* node = static_cast<torch::autograd::CppNode<SaveInputs>*>(inputs_.get());
    return node->ctx_.get_saved_variables();
  }

  Region region_;
  autograd::NodeHandle inputs_;
  std::optional<KeptResults> kept_;
  std::vector<std::weak_ptr<Holder>> holders_;
  size_t num_filled_ = 0;
  bool forward_ended_ = false;
  std::mutex mutex_;
};

class HeldTensor : public PackedTensor {
 public:
  HeldTensor(std::shared_ptr<Frame> frame, std::shared_ptr<Holder> holder)
      : frame_(std::move(frame)), holder_(std::move(holder)) {}
  at::Tensor unpack() override { return frame_->value_of(*holder_); }

 private:
  std::shared_ptr<Frame> frame_;
  std::shared_ptr<Holder> holder_;
};

class ForgetValues : public RegionHooks {
 public:
  explicit ForgetValues(std::shared_ptr<Frame> frame) : frame_(std::move(frame)) {}
  std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) override {
    return std::make_unique<HeldTensor>(frame_, frame_->add_holder(tensor));
  }

 private:
  std::shared_ptr<Frame> frame_;
};

class FillHolders : public RegionHooks {
 public:
  FillHolders(Frame& frame, const TensorList& stand_ins) : frame_(frame) {
    for (const at::Tensor& tensor : stand_ins) stand_ins_.insert(tensor.unsafeGetTensorImpl());
  }
  // Forward saved the tensors that these leaves replace.
  bool takes_leaf(const at::TensorImpl* leaf) override { return stand_ins_.contains(leaf); }
  std::unique_ptr<PackedTensor> pack(const at::Tensor& tensor) override {
    frame_.fill(tensor);
    if (frame_.is_finished()) throw Finished();
    // A backward inside the function may need it.
    return std::make_unique<autograd::KeptTensor>(tensor);
  }

 private:
  Frame& frame_;
  std::unordered_set<const at::TensorImpl*> stand_ins_;
};

void Frame::run(TensorList inputs) {
  FillHolders hooks(*this, region_.stand_ins(inputs));
  const autograd::SavedTensorScope scope(hooks);
  if (kept_) kept_->begin_replay();
  const KeepingScope keeping(kept());
  try {
    region_.repeat([&] { region_.function(std::move(inputs)); });
  } catch (const Finished&) {
  }
}

void Frame::recompute() {
  if (kept_ && !forward_ended_) {
    raise<UsageError>(
        "RegionOptions::keep: ", region_.options.name,
        " runs a backward inside its forward, whose kept results are not complete; leave keep out");
  }
  TensorList inputs =
      region_.inputs_of(saved_inputs());  // outside the scopes: an outer region's hooks may recompute
  num_filled_ = 0;
  {
    const RegionTimer timer(region_, "recomputation");
    const RepeatRegion repeat(region_);
    run(std::move(inputs));
  }
  if (!is_full() || !forward_ended_) return;
  inputs_.reset();
  kept_.reset();
  region_.function = nullptr;
}

}  // namespace

TensorList run_with_recomputation(TensorFunction function, const TensorList& inputs, RegionOptions options) {
  auto frame = std::make_shared<Frame>(Region(std::move(function), inputs, std::move(options)));
  const RegionTimer timer(frame->region(), "forward");
  frame->save(inputs);
  ForgetValues hooks(frame);
  const autograd::SavedTensorScope scope(hooks);
  const KeepingScope keeping(frame->kept());
  TensorList outputs = frame->region().function(inputs);
  frame->end_forward();
  return outputs;
}

}  // namespace deepspeed::activation
