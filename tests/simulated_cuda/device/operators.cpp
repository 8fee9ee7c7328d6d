// Operators of the device: a fallback that calls the CPU's kernel over the same bytes. memory_operators.cpp
// has the rest.
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include "tests/simulated_cuda/device/call.h"
#include "tests/simulated_cuda/device/generator.h"
#include "tests/simulated_cuda/device/graphs.h"

namespace deepspeed::simulated {
namespace {

/// Operators whose result, or its size, the host has to know: it waits.
const std::set<std::string> kWaiting = {
    "aten::nonzero",  "aten::nonzero.out",       "aten::masked_select",     "aten::_unique",
    "aten::_unique2", "aten::masked_select.out", "aten::unique_dim",        "aten::equal",
    "aten::bincount", "aten::is_nonzero",        "aten::unique_consecutive"};
/// Operators that take tensors of the CPU beside those of the device.
const std::set<std::string> kMixing = {"aten::index", "aten::index_put", "aten::index_put_",
                                       "aten::_index_put_impl_"};

/// While it lives, the CPU's default generator gives the device's numbers.
class DeviceNumbers {
 public:
  DeviceNumbers()
      : lock_(mutex()),
        device_(cpu_numbers_of(default_generator(-1))),
        cpu_(at::detail::getDefaultCPUGenerator()) {
    former_ = cpu_.get_state();
    cpu_.set_state(device_.get_state());
  }
  ~DeviceNumbers() {
    device_.set_state(cpu_.get_state());
    cpu_.set_state(former_);
  }
  DeviceNumbers(const DeviceNumbers&) = delete;
  DeviceNumbers& operator=(const DeviceNumbers&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex made;
    return made;
  }
  std::lock_guard<std::mutex> lock_;
  at::Generator& device_;
  at::Generator cpu_;
  at::Tensor former_;
};

/// The arguments of an operator on their way to the CPU's kernel.
struct Arguments {
  Call call;
  bool has_generator = false, makes_on_device = false, has_host_tensors = false;

  at::Tensor taken(const at::Tensor& tensor, bool writes) {
    has_host_tensors = has_host_tensors || (tensor.defined() && tensor.is_cpu() && tensor.dim() > 0);
    return call.on_cpu(tensor, writes);
  }

  void take(c10::IValue& value, bool writes) {
    if (value.isTensor()) {
      value = taken(value.toTensor(), writes);
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> tensors = value.toTensorVector();
      for (at::Tensor& tensor : tensors) tensor = taken(tensor, writes);
      value = c10::List<at::Tensor>(tensors);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> made;
      for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList())
        made.push_back(tensor ? std::optional(taken(*tensor, writes)) : tensor);
      value = made;
    } else if (value.isDevice() && value.toDevice().is_cuda()) {
      value = c10::Device(c10::kCPU);
      makes_on_device = true;
    } else if (value.isGenerator()) {
      has_generator = true;
      if (value.toGenerator().device().is_cuda()) value = cpu_numbers_of(value.toGenerator());
    }
  }
};

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack, bool has_generator) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  std::optional<DeviceNumbers> numbers;
  if (!has_generator && op.hasTag(at::Tag::nondeterministic_seeded)) numbers.emplace();
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}

std::vector<at::Tensor> tensors_of(const std::vector<c10::IValue>& values) {
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& value : values) {
    if (value.isTensor()) tensors.push_back(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(tensor);
    }
  }
  return tensors;
}

/// Returns where on the device results lie that the CPU's kernel has made, as the CPU sees it; undefined for
/// those that are arguments.
std::vector<at::Tensor> places_of(const std::vector<c10::IValue>& on_cpu,
                                  const std::vector<c10::IValue>& on_device) {
  const std::vector<at::Tensor> made = tensors_of(on_cpu), results = tensors_of(on_device);
  std::vector<at::Tensor> places(made.size());
  for (size_t i = 0; i < made.size(); ++i) {
    if (!made[i].defined() || made[i].numel() == 0) continue;
    places[i] = Call("a result of a graph").on_cpu(results[i], false);
    if (places[i].data_ptr() == made[i].data_ptr()) places[i].reset();
  }
  return places;
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const std::string name =
      schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
  Arguments arguments{Call(name)};
  Call& call = arguments.call;
  const size_t begin = stack->size() - schema.arguments().size();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const auto* const alias = schema.arguments()[i].alias_info();
    arguments.take((*stack)[begin + i], alias != nullptr && alias->isWrite());
  }
  TORCH_CHECK(call.has_device_tensors() || arguments.makes_on_device, name,
              " without a tensor of the simulated device");
  TORCH_CHECK(!call.has_device_tensors() || !arguments.has_host_tensors || kMixing.contains(schema.name()),
              name, ": expected all tensors to be on the same device, but found cuda and cpu");
  const std::vector<c10::IValue> given(stack->begin() + static_cast<int64_t>(begin), stack->end());
  call.launch();
  run_on_cpu(op, stack, arguments.has_generator);
  call.finish();
  const std::vector<c10::IValue> on_cpu(stack->end() - static_cast<int64_t>(schema.returns().size()),
                                        stack->end());
  if (kWaiting.contains(name) && call.has_device_tensors()) host_waits(clock_of(call.stream()), name);
  for (size_t i = stack->size() - schema.returns().size(); i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor()) {
      value = call.on_device(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> tensors = value.toTensorVector();
      for (at::Tensor& tensor : tensors) tensor = call.on_device(tensor);
      value = c10::List<at::Tensor>(tensors);
    }
  }
  if (Graph::current() == nullptr) return;
  const std::vector<c10::IValue> results(stack->end() - static_cast<int64_t>(schema.returns().size()),
                                         stack->end());
  repeat_in_graph(
      [op, given, on_cpu, made = places_of(on_cpu, results), has_generator = arguments.has_generator] {
        torch::jit::Stack again = given;
        run_on_cpu(op, &again, has_generator);
        const std::vector<at::Tensor> tensors = tensors_of(again);
        for (size_t i = 0; i < made.size(); ++i) {
          if (made[i].defined()) made[i].copy_(tensors[i]);
        }
      });
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

/// A composite kernel goes before the fallback. Operators that have one beside a kernel of the CPU, as
/// native_layer_norm, get the fallback by name.
const bool has_operators_beside_composites = [] {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!name.name.starts_with("aten::") || !op || !op->hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::CUDA) ||
        (!op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd)))
      continue;
    const std::string own =
        name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
    library.impl(own.c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
  return true;
}();

}  // namespace
}  // namespace deepspeed::simulated
