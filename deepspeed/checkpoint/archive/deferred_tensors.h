// Tensors of a file can take no memory of their size: their elements are made, or read from elsewhere, piece
// by piece while the file is written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/interval.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"

namespace deepspeed::checkpoint {

class DeferredTensors {
 public:
  /// Passes the elements `part` on to the sink, in order, in pieces of the tensor's dtype.
  using Source = std::function<void(const Interval& part, const PieceSink& sink)>;

  /// Adds a tensor, (numel) on the meta device; it and its views are written as `source` gives them.
  at::Tensor add(int64_t numel, at::ScalarType dtype, Source source);
  /// Returns the stream that gives the data of all tensors that were added, before or later.
  TensorStream stream() const;

 private:
  struct Entry {
    at::Tensor tensor;  // holds the storage that names it
    Source source;
  };
  using Entries = std::unordered_map<const void*, Entry>;  // by storage

  std::shared_ptr<Entries> entries_ = std::make_shared<Entries>();
};

}  // namespace deepspeed::checkpoint
