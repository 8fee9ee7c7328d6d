// 1. KeepingScope turns the dispatch key on, so that each operator of the thread reaches see_operator().
// 2. In forward, an operator that the policy names runs, and its results are kept as they are then.
// 3. In the recomputation such an operator does not run. Autograd, which lies above the key, gets the kept
//    results in order. A generator from which the operator drew continues with its state after the operator.
#include "deepspeed/activation/recompute/kept_results.h"

#include <algorithm>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_lazy_clone.h>
#include <c10/core/impl/COW.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "deepspeed/base/error.h"

namespace deepspeed::activation {
namespace {

using torch::jit::Stack;

/// Lies below autograd and above the backends; torch itself does not use it.
constexpr c10::DispatchKey kKeepingKey = c10::DispatchKey::Fake;
constexpr c10::DispatchKeySet kBelowKeeping(c10::DispatchKeySet::FULL_AFTER, kKeepingKey);

thread_local KeptResults* current_results = nullptr;

/// Returns a tensor with the value of `tensor`, protected from later writes. torch::nn::Linear, for example,
/// adds its bias to a product in place. A lazy clone shares the memory until one side writes. The clone is
/// also a separate tensor. Autograd sets its node on the result itself, so keeping the result itself would
/// form a cycle.
at::Tensor value_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  const bool can_share =
      c10::impl::cow::has_simple_data_ptr(storage) || c10::impl::cow::is_cow_data_ptr(storage.data_ptr());
  return can_share ? at::_lazy_clone(tensor) : tensor.clone();
}

void see_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  KeptResults* const results = current_results;
  const c10::DispatchKeySet below = keys & kBelowKeeping;
  // An overload that writes into an argument, as mm.out, has no result that could stand for the write.
  if (results == nullptr || !results->keeps(op.operator_name().name) || op.schema().is_mutable())
    return op.redispatchBoxed(below, stack);
  if (results->replays()) return results->give_back(op, stack);
  const KeepingScope inside(nullptr);  // operators called inside are part of this one
  std::optional<GeneratorStates> before;
  if (op.hasTag(at::Tag::nondeterministic_seeded)) before = GeneratorStates::now();
  op.redispatchBoxed(below, stack);
  results->keep(op, *stack, before && *before != GeneratorStates::now());
}

bool has_own_results(const c10::FunctionSchema& schema) {
  const auto& results = schema.returns();
  return !schema.is_mutable() && !results.empty() &&
         std::none_of(results.begin(), results.end(),
                      [](const c10::Argument& result) { return result.alias_info() != nullptr; });
}

/// Throws if torch has no operator of this name, or if its results cannot be kept.
void check_operator(const std::string& name) {
  const auto all = c10::Dispatcher::singleton().getAllOpNames();
  bool found = false;
  for (const c10::OperatorName& known : all) {
    if (known.name != name || known.overload_name.ends_with("out")) continue;
    const auto op = c10::Dispatcher::singleton().findSchema(known);
    if (!op) continue;
    found = true;
    if (!has_own_results(op->schema())) {
      raise<UsageError>("SelectivePolicy: operator '", name, "' writes an argument, returns a view of one, ",
                        "or returns nothing, expected one with new results, such as aten::mm");
    }
  }
  if (!found) {
    raise<UsageError>("SelectivePolicy: torch has no operator '", name,
                      "', expected a name below autograd, such as aten::mm or aten::convolution");
  }
}

}  // namespace

SelectivePolicy::SelectivePolicy(const std::vector<std::string>& operators)
    : operators_(operators.begin(), operators.end()) {
  for (const auto& name : operators) check_operator(name);
}

SelectivePolicy SelectivePolicy::attention() {
  return SelectivePolicy(
      {"aten::_scaled_dot_product_flash_attention_for_cpu", "aten::_scaled_dot_product_flash_attention",
       "aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention"});
}

SelectivePolicy SelectivePolicy::matmuls_and_attention() {
  SelectivePolicy policy = attention();
  const SelectivePolicy products(
      {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution"});
  policy.operators_.insert(products.operators_.begin(), products.operators_.end());
  return policy;
}

void KeptResults::keep(const c10::OperatorHandle& op, const Stack& stack, bool drew) {
  Call call{op.operator_name().name, {}, {}, {}};
  for (const c10::IValue& value : torch::jit::last(stack, op.schema().returns().size())) {
    if (!value.isTensor()) {
      raise<UsageError>("SelectivePolicy: operator '", call.op, "' returns something other than a tensor, ",
                        "expected one that returns only tensors");
    }
    call.results.push_back(value_of(value.toTensor()));
    call.counted.push_back(std::make_unique<CountedTensor>(call.results.back()));
  }
  if (drew) call.generators_after = GeneratorStates::now();
  calls_.push_back(std::move(call));
}

void KeptResults::give_back(const c10::OperatorHandle& op, Stack* stack) {
  const std::string& name = op.operator_name().name;
  if (next_ >= calls_.size() || calls_[next_].op != name) {
    raise<UsageError>("the recomputation called ", name, " where the forward called ",
                      next_ < calls_.size() ? calls_[next_].op : "no kept operator",
                      "; a checkpointed function must do the same each time");
  }
  Call& call = calls_[next_++];
  torch::jit::drop(*stack, op.schema().arguments().size());
  call.counted.clear();
  for (at::Tensor& result : call.results) stack->emplace_back(std::move(result));
  call.results.clear();
  if (call.generators_after) call.generators_after->set();
}

KeepingScope::KeepingScope(KeptResults* results)
    : former_(std::exchange(current_results, results)),
      was_on_(c10::impl::tls_is_dispatch_key_included(kKeepingKey)) {
  c10::impl::tls_set_dispatch_key_included(kKeepingKey, results != nullptr);
}
KeepingScope::~KeepingScope() {
  current_results = former_;
  c10::impl::tls_set_dispatch_key_included(kKeepingKey, was_on_);
}

}  // namespace deepspeed::activation

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&deepspeed::activation::see_operator>());
}
