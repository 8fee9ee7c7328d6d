#include "deepspeed/trial/trainer/metrics.h"

#include <algorithm>
#include <optional>

#include "deepspeed/base/error.h"
#include "deepspeed/comm/functions.h"

namespace deepspeed::trial {
namespace {

Json json_of_tensor(const at::Tensor& tensor) {
  if (tensor.dim() == 0) {
    if (at::isIntegralType(tensor.scalar_type(), true)) return tensor.item<int64_t>();
    return tensor.item<double>();
  }
  Json list = Json::array();
  for (int64_t i = 0; i < tensor.size(0); ++i) list.push_back(json_of_tensor(tensor[i]));
  return list;
}

double reduced(const std::vector<double>& values, Reducer reducer) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  switch (reducer) {
    case Reducer::kAvg:
      return sum / static_cast<double>(values.size());
    case Reducer::kSum:
      return sum;
    case Reducer::kMax:
      return *std::max_element(values.begin(), values.end());
    case Reducer::kMin:
      return *std::min_element(values.begin(), values.end());
  }
  return sum;
}

/// Returns the numbers of a metric in the batches that have one.
std::vector<double> numbers_of(const std::vector<Json>& batches, const std::string& name) {
  std::vector<double> numbers;
  for (const Json& batch : batches) {
    const auto found = batch.find(name);
    if (found != batch.end() && found->is_number()) numbers.push_back(found->get<double>());
  }
  return numbers;
}

Reducer reducer_of(const Reducers& reducers, const std::string& name, const Json& metrics) {
  if (const auto* one = std::get_if<Reducer>(&reducers)) return *one;
  const auto& each = std::get<std::map<std::string, Reducer>>(reducers);
  const auto found = each.find(name);
  if (found == each.end() || each.size() != metrics.size()) {
    raise<UsageError>(
        "Please provide a single evaluation reducer or provide a reducer for every validation metric. "
        "Metric: ",
        name);
  }
  return found->second;
}

}  // namespace

Metric::Metric(const at::Tensor& value) {
  const at::Tensor own = value.detach().cpu();
  json_ = json_of_tensor(own.numel() == 1 ? own.reshape({}) : own);
}

Json SimpleMetricReducer::cross_slot_reduce(const std::vector<Json>& per_slot) {
  std::vector<Json> all;
  for (const Json& updates : per_slot) all.insert(all.end(), updates.begin(), updates.end());
  return reduce_(all);
}

Json json_of(const Metrics& metrics) {
  Json json = Json::object();
  for (const auto& [name, metric] : metrics) json[name] = metric.json();
  return json;
}

std::vector<Json> mean_over_ranks(const comm::ProcessGroup& group, const std::vector<Json>& batches) {
  if (group.size() == 1) return batches;
  std::vector<Json> of_ranks = comm::all_gather_object(Json(batches), group);
  std::erase_if(of_ranks, [](const Json& list) { return list.empty(); });
  if (of_ranks.empty()) return {};
  std::vector<Json> combined;
  for (size_t i = 0; i < of_ranks.front().size(); ++i) {
    std::vector<Json> at_index;
    for (const Json& list : of_ranks)
      if (i < list.size()) at_index.push_back(list[i]);
    Json metrics = Json::object();
    for (const auto& [name, value] : of_ranks.front()[i].items()) {
      const auto numbers = numbers_of(at_index, name);
      metrics[name] = numbers.empty() ? value : Json(reduced(numbers, Reducer::kAvg));
    }
    combined.push_back(std::move(metrics));
  }
  return combined;
}

Json mean_over_batches(const std::vector<Json>& batches) {
  Json means = Json::object();
  if (batches.empty()) return means;
  for (const auto& [name, value] : batches.front().items()) {
    const auto numbers = numbers_of(batches, name);
    means[name] = numbers.size() == batches.size() ? Json(reduced(numbers, Reducer::kAvg)) : Json();
  }
  return means;
}

Json reduce_validation(const comm::ProcessGroup& group, const std::vector<Json>& batches,
                       const Reducers& reducers) {
  Json own = {{"batches", batches.size()}, {"metrics", Json::object()}};
  if (!batches.empty()) {
    for (const auto& [name, value] : batches.front().items()) {
      const auto numbers = numbers_of(batches, name);
      if (!numbers.empty())
        own["metrics"][name] = reduced(numbers, reducer_of(reducers, name, batches.front()));
    }
  }
  const std::vector<Json> of_ranks =
      group.size() == 1 ? std::vector<Json>{own} : comm::all_gather_object(own, group);
  Json result = Json::object();
  for (const Json& first : of_ranks) {
    if (first["batches"] == 0) continue;
    for (const auto& [name, value] : first["metrics"].items()) {
      if (result.contains(name)) continue;
      const Reducer reducer = reducer_of(reducers, name, first["metrics"]);
      std::vector<double> values;
      double weighted = 0.0, count = 0.0;
      for (const Json& rank : of_ranks) {
        if (!rank["metrics"].contains(name)) continue;
        values.push_back(rank["metrics"][name].get<double>());
        weighted += values.back() * rank["batches"].get<double>();
        count += rank["batches"].get<double>();
      }
      result[name] = reducer == Reducer::kAvg ? weighted / count : reduced(values, reducer);
    }
  }
  return result;
}

}  // namespace deepspeed::trial
