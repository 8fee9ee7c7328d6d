// Lets a file contain tensors that are never in memory as a whole. Their elements are computed or read from
// elsewhere, piece by piece, while the file is written.
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
  /// Passes the elements in `part` to the sink, in order and in the tensor's dtype.
  using Source = std::function<void(const Interval& part, const PieceSink& sink)>;

  /// Returns a new meta tensor of shape (numel). `source` provides its data and that of its views.
  at::Tensor add(int64_t numel, at::ScalarType dtype, Source source);
  /// Returns the stream that provides the data of all tensors added before or later.
  TensorStream stream() const;

 private:
  struct Entry {
    at::Tensor tensor;  // keeps alive the storage that identifies it
    Source source;
  };
  using Entries = std::unordered_map<const void*, Entry>;  // by storage

  std::shared_ptr<Entries> entries_ = std::make_shared<Entries>();
};

}  // namespace deepspeed::checkpoint
