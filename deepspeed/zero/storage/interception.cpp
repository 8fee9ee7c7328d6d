// Intercepts every operator on an armed tensor (storage_record.h) or a view of one, in forward and backward.
// It makes the data whole around the operator. It is a boxed fallback of a dispatch key that only armed
// tensors have, registered once per process when the library is loaded. Operators on ordinary tensors pay
// nothing.
//
// The fallback (intercept) takes these steps in order:
//
// 1. Operators that need no data continue below at once: those whose schema says that they return plain
//    views, and those that only read sizes and types (zeros_like, ...). Operators with an autocast rule
//    continue too, since autocast calls them a second time, with casts.
// 2. A plain cast to another floating type arms its result instead of computing it (run_cast), so that the
//    copies that autocast keeps for backward hold no data either. The cast runs below without its inner copy_
//    (leave_out_copy).
// 3. Padding by nothing returns the tensor itself (leave_out_pad), as does set_() to the same tensor
//    (leave_out_set).
// 4. An operator that makes a sparse tensor gets copies of its values (copy_values), since that tensor keeps
//    them.
// 5. Around any other operator the records of its tensor arguments are begun, in argument order, and ended
//    afterwards (Uses). An armed tensor counts as written if the schema says so. begin_use() gathers, so the
//    order is the same on all ranks.
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/clone.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include "deepspeed/zero/storage/storage_record.h"

namespace deepspeed::zero {
namespace {

using torch::jit::Stack;

constexpr c10::DispatchKeySet kBelowInterception(c10::DispatchKeySet::FULL_AFTER, kInterceptionKey);
// Results of these layers are wrappers, whose data is not the tensor's own.
constexpr c10::DispatchKeySet kWrappingKeys({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
                                             c10::DispatchKey::Functionalize,
                                             c10::DispatchKey::FuncTorchBatched,
                                             c10::DispatchKey::FuncTorchGradWrapper,
                                             c10::DispatchKey::FuncTorchDynamicLayerFrontMode});

enum class OperatorKind { kNoData, kData, kCast, kCopy, kPad, kSet, kKeepsValues };

// aten::pad is among them because it only calls the operator of its mode, which is intercepted again.
bool reads_metadata_alone(const std::string& name) {
  static const std::unordered_set<std::string_view> names = {"aten::size",
                                                             "aten::sym_size",
                                                             "aten::stride",
                                                             "aten::sym_stride",
                                                             "aten::sym_numel",
                                                             "aten::sym_storage_offset",
                                                             "aten::is_same_size",
                                                             "aten::is_floating_point",
                                                             "aten::is_complex",
                                                             "aten::is_signed",
                                                             "aten::is_inference",
                                                             "aten::is_leaf",
                                                             "aten::is_conj",
                                                             "aten::is_neg",
                                                             "aten::_is_zerotensor",
                                                             "aten::output_nr",
                                                             "aten::_version",
                                                             "aten::requires_grad_",
                                                             "aten::retain_grad",
                                                             "aten::retains_grad",
                                                             "aten::detach_",
                                                             "aten::result_type",
                                                             "aten::record_stream",
                                                             "aten::empty_like",
                                                             "aten::zeros_like",
                                                             "aten::ones_like",
                                                             "aten::full_like",
                                                             "aten::rand_like",
                                                             "aten::randn_like",
                                                             "aten::randint_like",
                                                             "aten::new_empty",
                                                             "aten::new_empty_strided",
                                                             "aten::new_zeros",
                                                             "aten::new_ones",
                                                             "aten::new_full",
                                                             "aten::_has_compatible_shallow_copy_type",
                                                             "aten::pad"};
  return names.contains(name);
}

// Operators on a sparse tensor do not show the values from which it was made.
bool makes_a_sparse_tensor(const std::string& name) {
  static const std::unordered_set<std::string_view> names = {"aten::sparse_coo_tensor",
                                                             "aten::_sparse_coo_tensor_unsafe",
                                                             "aten::_sparse_coo_tensor_with_dims_and_tensors",
                                                             "aten::sparse_compressed_tensor",
                                                             "aten::_sparse_compressed_tensor_unsafe",
                                                             "aten::sparse_csr_tensor",
                                                             "aten::sparse_csc_tensor",
                                                             "aten::sparse_bsr_tensor",
                                                             "aten::sparse_bsc_tensor"};
  return names.contains(name);
}

bool returns_plain_views(const c10::FunctionSchema& schema) {
  if (schema.is_mutable() || schema.returns().empty()) return false;
  for (const c10::Argument& value : schema.returns()) {
    if (value.alias_info() == nullptr || value.alias_info()->isWrite()) return false;
  }
  return true;
}

OperatorKind kind_of(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<c10::OperatorName, OperatorKind> known;
  const auto [entry, is_new] = known.try_emplace(op.operator_name(), OperatorKind::kData);
  if (!is_new) return entry->second;
  const std::string& name = op.operator_name().name;
  if (name == "aten::_to_copy") {
    entry->second = OperatorKind::kCast;
  } else if (name == "aten::copy_") {
    entry->second = OperatorKind::kCopy;
  } else if (name == "aten::constant_pad_nd") {
    entry->second = OperatorKind::kPad;
  } else if (name == "aten::set_" && op.operator_name().overload_name == "source_Tensor") {
    entry->second = OperatorKind::kSet;
  } else if (makes_a_sparse_tensor(name)) {
    entry->second = OperatorKind::kKeepsValues;
  } else if (reads_metadata_alone(name) || returns_plain_views(op.schema())) {
    entry->second = OperatorKind::kNoData;
  }
  return entry->second;
}

/// Holds the records whose data a running operator uses.
class Uses {
 public:
  Uses() : outer_(std::exchange(innermost, this)) {}
  ~Uses() {
    innermost = outer_;
    for (const auto& record : records_) record->end_use();
  }
  Uses(const Uses&) = delete;
  Uses& operator=(const Uses&) = delete;

  void begin(const c10::OperatorHandle& op, const Stack& stack) {
    const auto& arguments = op.schema().arguments();
    const auto values = torch::jit::last(stack, arguments.size());
    for (size_t i = 0; i < arguments.size(); ++i) {
      const bool writes = arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
      if (values[i].isTensor()) {
        begin(op, values[i].toTensor(), writes);
      } else if (values[i].isList()) {
        begin_list(op, values[i], writes);
      }
    }
  }

  /// Returns whether an operator that runs on this thread uses the record's data.
  static bool have(const StorageRecord* record) {
    for (const Uses* uses = innermost; uses != nullptr; uses = uses->outer_) {
      for (const auto& held : uses->records_) {
        if (held.get() == record) return true;
      }
    }
    return false;
  }

 private:
  void begin(const c10::OperatorHandle& op, const at::Tensor& tensor, bool writes) {
    auto record = record_of(tensor);
    if (!record) return;
    record->begin_use(op.operator_name().name, writes);
    records_.push_back(std::move(record));
  }

  void begin_list(const c10::OperatorHandle& op, const c10::IValue& list, bool writes) {
    for (const c10::IValue& value : list.toListRef()) {
      if (value.isTensor()) {
        begin(op, value.toTensor(), writes);
      } else if (!value.isNone()) {
        return;  // a list of numbers
      }
    }
  }

  static thread_local const Uses* innermost;

  c10::SmallVector<std::shared_ptr<StorageRecord>, 4> records_;
  const Uses* outer_;  // of the operator that called this one
};
thread_local const Uses* Uses::innermost = nullptr;

// Marks the cast that runs on this thread. The copy of its data is left out.
struct CastInProgress {
  explicit CastInProgress(const StorageRecord* record)
      : source(record), outer(std::exchange(current, this)) {}
  ~CastInProgress() { current = outer; }
  CastInProgress(const CastInProgress&) = delete;
  CastInProgress& operator=(const CastInProgress&) = delete;

  static thread_local CastInProgress* current;
  const StorageRecord* source;
  CastInProgress* outer;
  bool left_out = false;
};
thread_local CastInProgress* CastInProgress::current = nullptr;

bool covers_its_storage(const at::Tensor& tensor) {
  return tensor.is_non_overlapping_and_dense() && tensor.storage_offset() == 0 &&
         static_cast<size_t>(tensor.numel()) * tensor.dtype().itemsize() == tensor.storage().nbytes();
}

// Returns the type to which _to_copy(self, dtype, layout, device, pin_memory, non_blocking, memory_format)
// casts, if it does nothing else.
std::optional<at::ScalarType> plain_cast(const Stack& stack, c10::DispatchKeySet below) {
  const auto values = torch::jit::last(stack, 7);
  const at::Tensor& self = values[0].toTensor();
  if (below.has_any(kWrappingKeys) || self.is_inference() || !covers_its_storage(self)) return std::nullopt;
  if (!values[1].isInt() || (values[2].isInt() && values[2].toLayout() != at::kStrided)) return std::nullopt;
  if (values[3].isDevice() && values[3].toDevice() != self.device()) return std::nullopt;
  if (values[4].isBool() && values[4].toBool()) return std::nullopt;
  // The elements must keep their order in memory.
  const auto format = values[6].isInt() ? values[6].toMemoryFormat() : at::MemoryFormat::Preserve;
  if (format != at::MemoryFormat::Preserve &&
      !(format == at::MemoryFormat::Contiguous && self.is_contiguous()))
    return std::nullopt;
  const at::ScalarType dtype = values[1].toScalarType();
  if (dtype == self.scalar_type() || !at::isFloatingType(dtype) || !self.is_floating_point())
    return std::nullopt;
  return dtype;
}

// Below autograd, kernels cast their arguments, for example to the common type of several, and read the
// result at once.
bool is_cast_of_a_kernel(const StorageRecord* record) {
  return c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradFunctionality) &&
         Uses::have(record);
}

bool run_cast(const c10::OperatorHandle& op, c10::DispatchKeySet below, Stack* stack) {
  const auto record = record_of(torch::jit::peek(*stack, 0, 7).toTensor());
  if (!record || is_cast_of_a_kernel(record.get())) return false;
  const auto dtype = plain_cast(*stack, below);
  if (!dtype) return false;
  auto cast_record = record->cast(*dtype);
  if (!cast_record) return false;
  CastInProgress scope(record.get());
  op.redispatchBoxed(below, stack);
  if (scope.left_out) arm(stack->back().toTensor(), std::move(cast_record));
  return true;
}

// Leaves out copy_(self, src, non_blocking) inside a cast: self stays as it was allocated.
bool leave_out_copy(Stack* stack) {
  CastInProgress* const cast = CastInProgress::current;
  if (cast == nullptr || record_of(torch::jit::peek(*stack, 1, 3).toTensor()).get() != cast->source)
    return false;
  cast->left_out = true;
  torch::jit::drop(*stack, 2);
  return true;
}

// constant_pad_nd(self, pad, value) of a parameter's `.data` by nothing returns that tensor, so it needs no
// data. Transformers does this to the bias of a head with a tied weight.
bool leave_out_pad(Stack* stack) {
  const auto values = torch::jit::last(stack, 3);
  const at::Tensor self = values[0].toTensor();
  if (self.requires_grad() || !record_of(self)) return false;
  for (const c10::SymInt& amount : values[1].toSymIntVector()) {
    if (amount.maybe_as_int() != 0) return false;
  }
  torch::jit::drop(*stack, 3);
  stack->emplace_back(at::alias(self));
  return true;
}

bool is_over_the_same_memory(const at::Tensor& one, const at::Tensor& other) {
  return one.defined() && other.defined() && one.has_storage() && other.has_storage() &&
         one.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
         one.scalar_type() == other.scalar_type() && one.storage_offset() == other.storage_offset() &&
         one.sizes() == other.sizes() && one.strides() == other.strides();
}

// set_(self, source) to the memory that self has changes nothing. Python's register_parametrization() does
// this without a right_inverse.
bool leave_out_set(Stack* stack) {
  const auto values = torch::jit::last(stack, 2);
  if (!is_over_the_same_memory(values[0].toTensor(), values[1].toTensor())) return false;
  torch::jit::drop(*stack, 1);
  return true;
}

void copy_values(const c10::OperatorHandle& op, Stack* stack) {
  for (size_t left = op.schema().arguments().size(); left > 0; --left) {
    c10::IValue& value = (*stack)[stack->size() - left];
    if (value.isTensor() && record_of(value.toTensor())) value = at::clone(value.toTensor());
  }
}

void intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
  const c10::DispatchKeySet below = keys & kBelowInterception;
  const OperatorKind kind = kind_of(op);
  // An operator with an autocast kernel is intercepted again, with the casts as its arguments.
  if (kind == OperatorKind::kNoData || keys.has_any(c10::autocast_dispatch_keyset))
    return op.redispatchBoxed(below, stack);
  if (kind == OperatorKind::kCast && run_cast(op, below, stack)) return;
  if (kind == OperatorKind::kCopy && leave_out_copy(stack)) return;
  if (kind == OperatorKind::kPad && leave_out_pad(stack)) return;
  if (kind == OperatorKind::kSet && leave_out_set(stack)) return;
  if (kind == OperatorKind::kKeepsValues) copy_values(op, stack);
  Uses uses;
  uses.begin(op, *stack);
  op.redispatchBoxed(below, stack);
}

}  // namespace
}  // namespace deepspeed::zero

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&deepspeed::zero::intercept>());
}
