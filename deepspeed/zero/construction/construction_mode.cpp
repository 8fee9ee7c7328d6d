#include "deepspeed/zero/construction/construction_mode.h"

#include <unordered_map>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

namespace deepspeed::zero {
namespace {

// Torch passes the mode's key on to threads of autograd and of parallel loops, but not this pointer. It is
// null there, and nothing is seen.
thread_local Construction* of_this_thread = nullptr;

/// Returns whether an operator of this schema allocates a tensor that it returns. Initialisers write an
/// existing parameter instead, so that parameter is not partitioned just before them.
bool makes_tensors(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<c10::OperatorName, bool> known;
  const auto [entry, is_new] = known.try_emplace(op.operator_name(), false);
  if (!is_new) return entry->second;
  for (const c10::Argument& value : op.schema().returns()) {
    const bool is_tensor = value.type()->isSubtypeOf(*c10::TensorType::get());
    if (is_tensor && value.alias_info() == nullptr) entry->second = true;
  }
  return entry->second;
}

void note_births(const c10::OperatorHandle& op, const torch::jit::Stack& stack, Construction& construction) {
  const auto& returns = op.schema().returns();
  const auto values = torch::jit::last(stack, returns.size());
  for (size_t i = 0; i < returns.size(); ++i) {
    const bool is_written = returns[i].alias_info() != nullptr && returns[i].alias_info()->isWrite();
    if (values[i].isTensor() && !is_written) construction.note_birth(values[i].toTensor());
  }
}

void watch(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  Construction* const construction = of_this_thread;
  const ConstructionPause pause;
  if (construction == nullptr) return op.callBoxed(stack);
  if (makes_tensors(op)) construction->make_room();
  op.callBoxed(stack);
  note_births(op, *stack, *construction);
}

}  // namespace

Construction* current_construction() { return of_this_thread; }

ConstructionMode::ConstructionMode(std::shared_ptr<Construction> construction)
    : construction_(std::move(construction)) {
  of_this_thread = construction_.get();
}

ConstructionMode::~ConstructionMode() { of_this_thread = nullptr; }

}  // namespace deepspeed::zero

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&deepspeed::zero::watch>());
}
