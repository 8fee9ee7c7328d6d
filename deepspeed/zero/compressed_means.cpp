#include "deepspeed/zero/compressed_means.h"

#include <algorithm>

#include <ATen/ops/empty.h>

#include "deepspeed/base/message.h"
#include "deepspeed/tensor/scaling.h"

namespace deepspeed::zero {
namespace {

std::string worker_error_name(size_t group) { return message("worker_error.", group); }
std::string server_error_name(size_t group) { return message("server_error.", group); }

at::Tensor find_error(const std::vector<std::pair<std::string, at::Tensor>>& errors,
                      const std::string& name) {
  const auto found = std::ranges::find(errors, name, &std::pair<std::string, at::Tensor>::first);
  return found == errors.end() ? at::Tensor() : found->second;
}

}  // namespace

void CompressedMeans::Parts::add(const Place& place) {
  places.push_back(place);
  numel += place.in_flat.numel();
}

at::Tensor CompressedMeans::Parts::collect(const at::Tensor& flat) const {
  at::Tensor values = at::empty({numel}, flat.options());
  int64_t begin = 0;
  for (const Place& place : places) {
    const Interval in_flat = place.in_flat;
    values.narrow(0, begin, in_flat.numel()).copy_(flat.narrow(0, in_flat.begin, in_flat.numel()));
    begin += in_flat.numel();
  }
  return values;
}

void CompressedMeans::Parts::spread(const at::Tensor& values, const at::Tensor& flat) const {
  int64_t begin = 0;
  for (const Place& place : places) {
    const Interval in_flat = place.in_flat;
    flat.narrow(0, in_flat.begin, in_flat.numel()).copy_(values.narrow(0, begin, in_flat.numel()));
    begin += in_flat.numel();
  }
}

void CompressedMeans::Parts::scale(const at::Tensor& values, const std::vector<double>& scaling,
                                   bool divides) const {
  int64_t begin = 0;
  for (const Place& place : places) {
    const at::Tensor part = values.narrow(0, begin, place.in_flat.numel());
    if (divides) {
      part.div_(scaling.at(place.param));
    } else {
      deepspeed::scale(part, scaling.at(place.param));
    }
    begin += place.in_flat.numel();
  }
}

CompressedMeans::CompressedMeans(const ParamStore& store, const comm::ProcessGroup& data) : data_(data) {
  for (const StoredGroup& stored : store.groups()) {
    Group& group = groups_.emplace_back();
    for (const PlacedParam& placed : stored.layout.params()) {
      if (placed.in_flat.empty()) continue;
      const bool is_matrix = stored.params[placed.index].tensor.dim() > 1;
      (is_matrix ? group.matrices : group.rest).add({placed.index, placed.in_flat});
    }
    group.compressed = std::make_unique<comm::CompressedAllReduce>(data, group.matrices.numel);
  }
}

void CompressedMeans::scaled_mean(size_t index, const at::Tensor& values,
                                  const std::vector<double>& scaling) const {
  if (data_.size() == 1) return;
  const Group& group = groups_[index];
  const at::Tensor matrices = group.matrices.collect(values), rest = group.rest.collect(values);
  if (!scaling.empty()) group.matrices.scale(matrices, scaling, /*divides=*/false);
  group.compressed->mean(matrices);
  if (!scaling.empty()) group.matrices.scale(matrices, scaling, /*divides=*/true);
  if (rest.numel() > 0) data_.all_reduce(rest, comm::ReduceOp::kAvg);
  group.matrices.spread(matrices, values);
  group.rest.spread(rest, values);
}

std::vector<std::pair<std::string, at::Tensor>> CompressedMeans::errors() const {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (size_t index = 0; index < groups_.size(); ++index) {
    const auto [worker, server] = groups_[index].compressed->errors();
    if (!worker.defined()) continue;
    all.emplace_back(worker_error_name(index), worker);
    all.emplace_back(server_error_name(index), server);
  }
  return all;
}

bool CompressedMeans::load_errors(const std::vector<std::pair<std::string, at::Tensor>>& errors) {
  reset();
  for (size_t index = 0; index < groups_.size(); ++index) {
    const at::Tensor worker = find_error(errors, worker_error_name(index)),
                     server = find_error(errors, server_error_name(index));
    if (!worker.defined() && !server.defined()) continue;
    if (groups_[index].compressed->load_errors(worker, server)) continue;
    reset();
    return false;
  }
  return true;
}

void CompressedMeans::reset() {
  for (const Group& group : groups_) group.compressed->reset();
}

int64_t CompressedMeans::bytes() const {
  int64_t bytes = 0;
  for (const Group& group : groups_) bytes += group.compressed->bytes();
  return bytes;
}

}  // namespace deepspeed::zero
