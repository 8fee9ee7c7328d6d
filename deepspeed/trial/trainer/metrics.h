// What train_batch() and evaluate_batch() return, and how values of batches and ranks become one.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "deepspeed/base/export.h"
#include "deepspeed/base/json.h"
#include "deepspeed/comm/group/process_group.h"

namespace deepspeed::trial {

/// Holds one value: a number, or a tensor. A tensor of one element counts as a number.
class DEEPSPEED_API Metric {
 public:
  Metric(double value) : json_(value) {}
  Metric(const at::Tensor& value);
  /// Returns the number, or nested lists of a tensor's elements.
  const Json& json() const { return json_; }

 private:
  Json json_;
};
using Metrics = std::map<std::string, Metric>;

/// Says how values of several batches become one.
enum class Reducer { kAvg, kSum, kMax, kMin };
/// Names one reducer for all metrics, or one for each.
using Reducers = std::variant<Reducer, std::map<std::string, Reducer>>;

/// Computes a metric of the program's own from all ranks' updates.
class DEEPSPEED_API MetricReducer {
 public:
  virtual ~MetricReducer() = default;
  /// Forgets the updates, as each training workload and each validation begins.
  virtual void reset() = 0;
  /// Returns what this rank has gathered.
  virtual Json per_slot_reduce() = 0;
  /// Returns the metric, or an object of several, from all ranks' per_slot_reduce().
  virtual Json cross_slot_reduce(const std::vector<Json>& per_slot) = 0;
};

/// Calls a function with all ranks' updates, in rank order.
class DEEPSPEED_API SimpleMetricReducer : public MetricReducer {
 public:
  using Reduce = std::function<Json(const std::vector<Json>& updates)>;

  explicit SimpleMetricReducer(Reduce reduce) : reduce_(std::move(reduce)) {}
  void update(Json value) { updates_.push_back(std::move(value)); }
  void reset() override { updates_ = Json::array(); }
  Json per_slot_reduce() override { return updates_; }
  Json cross_slot_reduce(const std::vector<Json>& per_slot) override;

 private:
  Reduce reduce_;
  Json updates_ = Json::array();
};

/// Returns metrics as JSON.
Json json_of(const Metrics& metrics);

/// Returns the ranks' micro batches as one list: numbers are the means over the ranks. Ranks without any are
/// left out. All ranks get the result. Collective.
std::vector<Json> mean_over_ranks(const comm::ProcessGroup& group, const std::vector<Json>& batches);
/// Returns the mean of each number over the batches; null for what is no number.
Json mean_over_batches(const std::vector<Json>& batches);
/// Reduces a validation: over this rank's batches, then over the ranks; an average counts batches. All ranks
/// get the result. Collective. Throws UsageError, with Determined's words, if `reducers` lack a metric.
Json reduce_validation(const comm::ProcessGroup& group, const std::vector<Json>& batches,
                       const Reducers& reducers);

}  // namespace deepspeed::trial
