// A kernel for each of the operators stands at a dispatch key below autograd that torch does not use, and
// that is on inside of a KeepingScope alone. Autograd's own kernels run above it in the recomputation too, so
// that they save the same tensors. Results are kept as lazy clones: torch::nn::Linear writes its bias onto a
// product, and the tensor itself would keep its own graph alive.
#include "deepspeed/activation/kept_results.h"

#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_lazy_clone.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "deepspeed/base/error.h"

namespace deepspeed::checkpointing {
namespace {

constexpr auto kKey = c10::DispatchKey::Fake;

KeptResults*& current() {
  static thread_local KeptResults* results = nullptr;
  return results;
}

void keep_or_give_back(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const auto below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  KeptResults* const results = current();
  if (results == nullptr) return op.redispatchBoxed(below, stack);
  const size_t num_returns = op.schema().returns().size();
  if (results->replays()) {
    std::vector<c10::IValue> kept = results->take(&op.schema(), op.schema().name());
    torch::jit::drop(*stack, op.schema().arguments().size());
    for (c10::IValue& value : kept) stack->emplace_back(std::move(value));
    return;
  }
  op.redispatchBoxed(below, stack);
  std::vector<c10::IValue> copies;
  for (const c10::IValue& value : torch::jit::last(*stack, num_returns)) {
    const bool is_tensor = value.isTensor() && value.toTensor().defined();
    copies.push_back(is_tensor ? c10::IValue(at::_lazy_clone(value.toTensor())) : value);
  }
  results->add(&op.schema(), std::move(copies));
}

}  // namespace

void KeptResults::add(const void* op, std::vector<c10::IValue> results) {
  calls_.push_back({op, std::move(results)});
}

std::vector<c10::IValue> KeptResults::take(const void* op, const std::string& name) {
  if (next_ >= calls_.size() || calls_[next_].op != op) {
    raise<UsageError>("a recomputed region calls ", name,
                      " where its forward did not: it must compute the same each time");
  }
  return std::move(calls_[next_++].results);
}

int64_t KeptResults::bytes() const {
  int64_t bytes = 0;
  for (const Call& call : calls_) {
    for (const c10::IValue& value : call.results) {
      if (value.isTensor() && value.toTensor().defined()) bytes += int64_t(value.toTensor().nbytes());
    }
  }
  return bytes;
}

const std::vector<std::string>& operators_to_keep() {
  static const std::vector<std::string> names = {
      "mm", "addmm", "bmm", "baddbmm", "convolution", "_scaled_dot_product_flash_attention_for_cpu",
  };
  return names;
}

KeepingScope::KeepingScope(KeptResults* results)
    : outer_(std::exchange(current(), results)), was_on_(c10::impl::tls_is_dispatch_key_included(kKey)) {
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

KeepingScope::~KeepingScope() {
  current() = outer_;
  c10::impl::tls_set_dispatch_key_included(kKey, was_on_);
}

}  // namespace deepspeed::checkpointing

TORCH_LIBRARY_IMPL(_, Fake, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, Fake, library) {
  for (const std::string& name : deepspeed::checkpointing::operators_to_keep()) {
    library.impl(name.c_str(),
                 torch::CppFunction::makeFromBoxedFunction<&deepspeed::checkpointing::keep_or_give_back>());
  }
}
