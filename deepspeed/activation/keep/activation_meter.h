// Counts the bytes that backward keeps of forwards: an engine logs them, tests hold them to a formula.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include <ATen/core/Tensor.h>

#include "deepspeed/autograd/saved_tensors.h"
#include "deepspeed/base/export.h"

namespace deepspeed::activation {

/// Counts storages that are kept for backward, each of them once, however many nodes save it. Any thread may
/// call.
class DEEPSPEED_API ActivationMeter {
 public:
  /// Bytes kept now, on the device that computes.
  int64_t kept_bytes() const;
  /// Bytes that stand on the host for a device now (offload, checkpoint_in_cpu).
  int64_t host_bytes() const;
  /// The most bytes that were kept at a time since the meter was made or reset: recomputed ones count too.
  int64_t peak_bytes() const;
  /// The most bytes that stood on the host at a time.
  int64_t peak_host_bytes() const;
  void reset_peak();

 private:
  friend class CountedTensor;
  struct Entry {
    int64_t uses = 0;
    int64_t bytes = 0;
    bool on_host = false;
  };
  const void* add(const at::Tensor& tensor, bool on_host);
  void remove(const void* storage);

  mutable std::mutex mutex_;
  std::unordered_map<const void*, Entry> storages_;
  int64_t kept_ = 0;
  int64_t on_host_ = 0;
  int64_t peak_ = 0;
  int64_t peak_on_host_ = 0;
};

/// The meters that count what a thread keeps, the innermost one first; null: nobody counts.
struct MeterList {
  std::shared_ptr<ActivationMeter> meter;
  std::shared_ptr<const MeterList> outer;
};
using Meters = std::shared_ptr<const MeterList>;

/// Counts one tensor at the thread's current meters while it lives, which must not be longer than the tensor.
class CountedTensor {
 public:
  enum class Place { kDevice, kHost };
  explicit CountedTensor(const at::Tensor& tensor, Place place = Place::kDevice);
  ~CountedTensor();
  CountedTensor(const CountedTensor&) = delete;
  CountedTensor& operator=(const CountedTensor&) = delete;

 private:
  Meters meters_;
  const void* storage_ = nullptr;
};

/// Makes meters the thread's current ones while it lives; a recomputation does so for those of its forward.
class MeterScope {
 public:
  explicit MeterScope(Meters meters);
  /// Adds a meter to those that count already.
  explicit MeterScope(std::shared_ptr<ActivationMeter> meter);
  ~MeterScope();
  MeterScope(const MeterScope&) = delete;
  MeterScope& operator=(const MeterScope&) = delete;

 private:
  Meters former_;
};
/// Returns the thread's current meters.
Meters current_meters();

/// Counts what the forwards of this thread keep while it lives: tensors that autograd saves, parameters and
/// views of them excepted, and what checkpointing keeps in their place. They count until backward frees them.
/// Inside of another one, whose meter goes on counting. Costs about a microsecond a saved tensor.
class DEEPSPEED_API CountActivations {
 public:
  explicit CountActivations(std::shared_ptr<ActivationMeter> meter);
  ~CountActivations();
  CountActivations(const CountActivations&) = delete;
  CountActivations& operator=(const CountActivations&) = delete;

 private:
  struct Scopes;
  std::unique_ptr<Scopes> scopes_;
};

/// Whether a tensor is a parameter, a view of one, or a cast of a partitioned one: what a model keeps anyway.
bool is_parameter(const at::Tensor& tensor);

/// Keeps a tensor where it is, and counts it unless it is a parameter.
std::unique_ptr<autograd::PackedTensor> keep_in_place(const at::Tensor& tensor);

}  // namespace deepspeed::activation
