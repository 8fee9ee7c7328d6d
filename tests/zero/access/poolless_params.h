// Parameters like those of a pool, without pool and ranks, for tests of the pool's parts.
#pragma once

#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "deepspeed/zero/access/gatherable.h"
#include "deepspeed/zero/storage/storage_record.h"

namespace deepspeed::testing {

/// Is the storage of a parameter without a pool. Operators take its tensor as it is.
class PoollessStorage final : public zero::StorageRecord {
 public:
  template <class... Args>
  explicit PoollessStorage(Args&&... args) : param(std::forward<Args>(args)...) {}

  void begin_use(const std::string&, bool) override {}
  void end_use() override {}
  std::shared_ptr<zero::StorageRecord> cast(at::ScalarType) override { return nullptr; }
  void on_storage_lost() noexcept override {}
  std::string text_where_empty() const override { return "'" + param.name + "' is empty"; }

  zero::Gatherable param;
};

/// Makes such parameters and keeps them, each with a tensor.
class PoollessParams {
 public:
  /// Makes a parameter of `numel` elements. Its shard holds the elements of one of `num_ranks` ranks, all
  /// equal to `value`.
  zero::Gatherable& add(const std::string& name, int64_t numel, zero::PartitionedTraits traits = {},
                        int num_ranks = 1, double value = 1.0) {
    auto shard = std::make_shared<zero::MemoryShard>(at::full({numel / num_ranks}, value, at::kFloat));
    return keep(std::make_shared<PoollessStorage>(name, numel, at::kCPU, std::move(shard), traits));
  }
  zero::Gatherable& add_copy(const zero::Gatherable& source, at::ScalarType dtype) {
    const Made& of = made(source);
    return keep(std::make_shared<PoollessStorage>(
        std::shared_ptr<zero::Gatherable>(of.storage, &of.storage->param), dtype));
  }
  /// Returns the tensor over the parameter's storage. Reading it throws while that is empty.
  const at::Tensor& tensor(const zero::Gatherable& param) { return made(param).tensor; }

 private:
  struct Made {
    std::shared_ptr<PoollessStorage> storage;
    at::Tensor tensor;
  };

  zero::Gatherable& keep(std::shared_ptr<PoollessStorage> storage) {
    zero::Gatherable& param = storage->param;
    param.record = storage;
    const at::Tensor tensor = at::empty({param.numel}, param.dtype);
    zero::arm(tensor, storage);
    made_.push_back({std::move(storage), tensor});
    return param;
  }
  Made& made(const zero::Gatherable& param) {
    for (Made& one : made_) {
      if (&one.storage->param == &param) return one;
    }
    std::terminate();
  }

  std::deque<Made> made_;
};

}  // namespace deepspeed::testing
