// Counts the bytes that forwards keep for backward. An engine logs them; tests compare them with a formula.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include <ATen/core/Tensor.h>

#include "deepspeed/autograd/saved_tensors.h"
#include "deepspeed/base/export.h"

namespace deepspeed::activation {

/// Counts storages kept for backward, each once, however many autograd nodes save it. Thread-safe.
class DEEPSPEED_API ActivationMeter {
 public:
  /// Returns the bytes kept now, on the computing device.
  int64_t kept_bytes() const;
  /// Returns the bytes kept in host memory instead of the device now (offload, checkpoint_in_cpu).
  int64_t host_bytes() const;
  /// Returns the most bytes kept at once, since construction or reset. Recomputed tensors count too.
  int64_t peak_bytes() const;
  /// Returns the most bytes on the host at once.
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

/// Lists the meters that count what a thread keeps, innermost first. A null list counts nothing.
struct MeterList {
  std::shared_ptr<ActivationMeter> meter;
  std::shared_ptr<const MeterList> outer;
};
using Meters = std::shared_ptr<const MeterList>;

/// Counts one tensor on the thread's current meters, from construction to destruction. The tensor must live
/// at least as long.
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

/// Makes meters the thread's current ones while it exists. A recomputation sets the meters of its forward.
class MeterScope {
 public:
  explicit MeterScope(Meters meters);
  /// Adds a meter to the thread's current ones.
  explicit MeterScope(std::shared_ptr<ActivationMeter> meter);
  ~MeterScope();
  MeterScope(const MeterScope&) = delete;
  MeterScope& operator=(const MeterScope&) = delete;

 private:
  Meters former_;
};
/// Returns the thread's current meters.
Meters current_meters();

/// Counts on `meter` what this thread's forwards keep for backward, while this object exists. It counts the
/// tensors that autograd saves, except parameters and their views. It also counts what checkpointing keeps in
/// place of them. Each tensor counts until backward frees it. Scopes nest; the outer meter keeps counting.
/// Costs about a microsecond per saved tensor.
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

/// Returns whether the model keeps a tensor anyway, so that it is not counted. This holds for parameters,
/// their views, and casts of partitioned parameters.
bool is_parameter(const at::Tensor& tensor);

/// Returns an object that keeps a tensor as it is, and counts it unless is_parameter().
std::unique_ptr<autograd::PackedTensor> keep_in_place(const at::Tensor& tensor);

}  // namespace deepspeed::activation
