// Checks the arguments of operations.
//
// check_arguments() visits an operation before a backend sees it and throws at the first problem. It checks
// tensors, then that sizes, dtypes and devices match, then ranks, tags, and the reduction.
#include "deepspeed/comm/group/operation.h"

#include <type_traits>

#include <c10/core/GradMode.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/interval.h"
#include "deepspeed/comm/group/group_impl.h"
#include "deepspeed/tensor/scaling.h"

namespace deepspeed::comm {
namespace {

// Checks one operation of a group; every error names both.
class ArgumentCheck {
 public:
  ArgumentCheck(const char* name, const GroupDescription& group) : name_(name), group_(group) {}

  void operator()(const operations::AllReduce& call) const {
    check_tensor("the tensor", call.tensor);
    check_reduction(call.tensor, call.op);
  }

  void operator()(const operations::Broadcast& call) const {
    check_tensor("the tensor", call.tensor);
    check_rank("the root", call.root);
  }

  void operator()(const operations::AllGather& call) const {
    check_blocks("output", call.output, "input", call.input);
  }

  void operator()(const operations::ReduceScatter& call) const {
    check_blocks("input", call.input, "output", call.output);
    check_reduction(call.input, call.op);
  }

  void operator()(const operations::ReduceToOwners& call) const {
    check_tensor("the tensor", call.tensor);
    bool fits =
        static_cast<int>(call.owned.size()) == group_.size() && call.tensor.scalar_type() != at::kBool;
    int64_t end = 0;
    for (const Interval& interval : call.owned) {
      if (interval.empty()) continue;
      fits = fits && interval.begin >= end && interval.end <= call.tensor.numel();
      end = interval.end;
    }
    if (!fits) {
      refuse("expected numbers and ", group_.size(), " ascending intervals inside the ", call.tensor.numel(),
             " elements of the tensor");
    }
    if (call.own.result.defined()) check_own_sum(call);
  }

  void operator()(const operations::AllToAll& call) const {
    const auto& [output, input] = call;
    check_tensor("output", output);
    check_tensor("input", input);
    if (output.numel() != input.numel() || input.numel() % group_.size() != 0 ||
        output.scalar_type() != input.scalar_type() || output.device() != input.device()) {
      refuse("output has ", output.numel(), " of ", output.scalar_type(), " on ", output.device(), ", input ",
             input.numel(), " of ", input.scalar_type(), " on ", input.device(),
             ", expected the same, divisible by ", group_.size());
    }
  }

  void operator()(const operations::Send& call) const {
    check_tensor("the tensor", call.tensor);
    check_rank("the destination", call.destination);
    check_tag(call.tag);
  }

  void operator()(const operations::Recv& call) const {
    check_tensor("the tensor", call.tensor);
    check_rank("the source", call.source);
    check_tag(call.tag);
  }

  void operator()(const operations::Barrier&) const {}

  void operator()(const operations::MonitoredBarrier& call) const {
    if (call.timeout.count() < 0) {
      refuse("the timeout is ", call.timeout.count(), " ms, expected 0 (the group's) or more");
    }
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    raise<UsageError>(name_, " of group '", group_.name, "': ", parts...);
  }

  void check_tensor(const char* what, const at::Tensor& tensor) const {
    if (!tensor.defined()) refuse(what, " is an undefined tensor");
    if (tensor.layout() != at::kStrided || !tensor.is_contiguous()) {
      refuse(what, " of sizes ", tensor.sizes(), " is not contiguous; pass contiguous() of it");
    }
  }

  void check_own_sum(const operations::ReduceToOwners& call) const {
    const at::Tensor& result = call.own.result;
    check_tensor("the result", result);
    const Interval& interval = call.owned[static_cast<size_t>(group_.rank)];
    const int64_t numel = interval.empty() ? 0 : interval.numel();
    if (result.numel() != numel || result.scalar_type() != call.tensor.scalar_type() ||
        result.device() != call.tensor.device()) {
      refuse("the result has ", result.numel(), " elements of ", result.scalar_type(), " on ",
             result.device(), ", expected the ", numel, " of ", call.tensor.scalar_type(), " on ",
             call.tensor.device(), " that this rank owns");
    }
    if (call.own.factor != 1.0 && !at::isFloatingType(result.scalar_type()))
      refuse("the factor is ", call.own.factor, " with integers, expected 1");
  }

  // Checks that `whole` holds one block of the size of `part` for every rank.
  void check_blocks(const char* whole_name, const at::Tensor& whole, const char* part_name,
                    const at::Tensor& part) const {
    check_tensor(whole_name, whole);
    check_tensor(part_name, part);
    if (whole.numel() != part.numel() * group_.size()) {
      refuse(whole_name, " has ", whole.numel(), " elements, expected ", group_.size(), " times the ",
             part.numel(), " of ", part_name);
    }
    if (whole.scalar_type() != part.scalar_type() || whole.device() != part.device()) {
      refuse(whole_name, " is ", whole.scalar_type(), " on ", whole.device(), ", but ", part_name, " is ",
             part.scalar_type(), " on ", part.device());
    }
  }

  void check_rank(const char* what, int rank) const {
    if (rank < 0 || rank >= group_.size()) {
      refuse(what, " is ", rank, ", expected 0 to ", group_.size() - 1);
    }
  }

  // Tags from 2^30 on are for collectives.
  void check_tag(int tag) const {
    if (tag < 0 || tag >= 1 << 30) refuse("the tag is ", tag, ", expected 0 to 2^30 - 1");
  }

  void check_reduction(const at::Tensor& tensor, ReduceOp op) const {
    const auto expect = [&](const char* what) {
      refuse("the tensor is ", tensor.scalar_type(), " on ", tensor.device(), ", expected ", what);
    };
    const auto type = tensor.scalar_type();
    if (type == at::kBool) expect("numbers; uint8 in place of bool");
    if (op == ReduceOp::kAvg && !at::isFloatingType(type)) {
      expect("a floating type for an average; integers have a sum");
    }
    const bool is_bitwise = op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor;
    if (is_bitwise && (!at::isIntegralType(type, false) || !tensor.is_cpu())) {
      expect("integers on the CPU for a bitwise operation");
    }
  }

  const char* name_;
  const GroupDescription& group_;
};

}  // namespace

const char* name_of(const Operation& operation) {
  return std::visit([](const auto& call) { return call.kName; }, operation);
}

void put_own_sum(const OwnSum& own, const at::Tensor& tensor, const Interval& interval) {
  if (!own.result.defined() || interval.empty()) return;
  const c10::NoGradGuard no_grad;
  const at::Tensor sum = tensor.detach().view({-1}).narrow(0, interval.begin, interval.numel());
  copy_scaled(own.result.detach().view({-1}), sum, own.factor);
}

at::Tensor whole_tensor_of(const Operation& operation) {
  return std::visit(
      [](const auto& call) -> at::Tensor {
        if constexpr (requires { call.tensor; }) return call.tensor;
        if constexpr (std::is_same_v<decltype(call), const operations::ReduceScatter&>) return call.input;
        if constexpr (requires { call.output; }) return call.output;
        return {};
      },
      operation);
}

void check_arguments(const Operation& operation, const GroupDescription& group) {
  std::visit(ArgumentCheck(name_of(operation), group), operation);
}

}  // namespace deepspeed::comm
