#include "deepspeed/comm/watch/collective_call.h"

#include <sstream>

#include "deepspeed/base/hash.h"

namespace deepspeed::comm {
namespace {

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kAvg:
      return "average";
    case ReduceOp::kBand:
      return "bitwise and";
    case ReduceOp::kBor:
      return "bitwise or";
    case ReduceOp::kBxor:
      return "bitwise xor";
    case ReduceOp::kSum:
      break;
  }
  return "sum";
}

}  // namespace

CollectiveCall call_of(const Operation& operation) {
  return std::visit(
      [](const auto& arguments) {
        CollectiveCall call{.collective = arguments.kName};
        const auto set_tensor = [&](const at::Tensor& tensor) {
          call.dtype = tensor.scalar_type();
          call.numel = tensor.numel();
          call.device = tensor.device().type();
        };
        if constexpr (requires { arguments.tensor; }) set_tensor(arguments.tensor);
        if constexpr (requires { arguments.input; }) set_tensor(arguments.input);
        if constexpr (requires { arguments.op; }) call.op = name_of(arguments.op);
        if constexpr (requires { arguments.owned; }) call.op = name_of(ReduceOp::kSum);
        if constexpr (requires { arguments.root; }) call.root = arguments.root;
        return call;
      },
      operation);
}

std::string describe(const CollectiveCall& call, uint64_t number) {
  std::ostringstream out;
  out << call.collective << " #" << number;
  const char* separator = " (";
  const auto next = [&]() -> std::ostream& {
    out << separator;
    separator = ", ";
    return out;
  };
  if (call.numel > 0) {
    next() << (*call.op != '\0' ? call.op : "") << (*call.op != '\0' ? " of " : "") << call.numel << ' '
           << c10::toString(call.dtype);
    if (call.device != at::kCPU) out << " on " << c10::DeviceTypeName(call.device, /*lower_case=*/true);
  }
  if (call.root >= 0) next() << "root " << call.root;
  if (!call.subject.empty()) next() << call.subject;
  if (call.position >= 0) next() << "micro step " << call.position;
  if (*separator == ',') out << ')';
  return out.str();
}

uint64_t extend_chain(uint64_t earlier, const CollectiveCall& call, uint64_t number) {
  Hash hash;
  hash.add(earlier);
  hash.add(call.collective);
  hash.add(call.op);
  hash.add(number);
  hash.add(static_cast<uint64_t>(call.numel));
  hash.add(static_cast<uint64_t>(call.dtype));
  hash.add(static_cast<uint64_t>(call.device));
  hash.add(static_cast<uint64_t>(call.root));
  hash.add(static_cast<uint64_t>(call.position));
  hash.add(call.subject);
  hash.add(call.held_hash());
  return hash.value();
}

uint32_t fingerprint(uint64_t chain) {
  uint64_t folded = 0;
  for (; chain != 0; chain >>= 20) folded ^= chain & 0xfffff;
  return static_cast<uint32_t>(folded);
}

}  // namespace deepspeed::comm
