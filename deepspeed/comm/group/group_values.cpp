// Implements ProcessGroup's collectives over numbers and texts by those over tensors. They use CPU tensors,
// for which a world over NCCL has a Gloo backend.
#include <algorithm>
#include <cstring>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::comm {
namespace {

at::Tensor byte_tensor(const std::string& text, int64_t numel) {
  auto bytes = at::zeros({numel}, at::kByte);
  if (!text.empty()) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

}  // namespace

std::vector<double> ProcessGroup::all_gather_scalar(double value) const {
  const auto output = at::empty({size()}, at::kDouble);
  all_gather(output, at::full({1}, value, at::kDouble));
  const auto* values = output.const_data_ptr<double>();
  return {values, values + size()};
}

double ProcessGroup::all_reduce_scalar(double value, ReduceOp op) const {
  const auto tensor = at::full({1}, value, at::kDouble);
  all_reduce(tensor, op);
  return *tensor.const_data_ptr<double>();
}

std::string ProcessGroup::broadcast_text(const std::string& text, int root) const {
  const auto length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  broadcast(length, root);
  const int64_t numel = *length.const_data_ptr<int64_t>();
  const auto bytes = rank() == root ? byte_tensor(text, numel) : at::zeros({numel}, at::kByte);
  broadcast(bytes, root);
  return numel == 0 ? std::string() : std::string(static_cast<const char*>(bytes.const_data_ptr()), numel);
}

std::vector<std::string> ProcessGroup::all_gather_text(const std::string& text) const {
  const auto lengths = all_gather_scalar(static_cast<double>(text.size()));
  const auto longest = static_cast<int64_t>(*std::max_element(lengths.begin(), lengths.end()));
  std::vector<std::string> texts(size());
  if (longest == 0) return texts;
  const auto output = at::empty({size() * longest}, at::kByte);
  all_gather(output, byte_tensor(text, longest));
  const auto* bytes = static_cast<const char*>(output.const_data_ptr());
  for (int i = 0; i < size(); ++i) texts[i].assign(bytes + i * longest, static_cast<size_t>(lengths[i]));
  return texts;
}

}  // namespace deepspeed::comm
