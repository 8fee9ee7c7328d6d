// How a batch is chosen that many numbers of devices divide.
//
// Version 0.1: each micro batch size, and their least common multiple, is a base. A candidate is a base times
// the largest highly composite number that keeps it within the limit, since such numbers have many divisors.
// The candidate that most numbers of devices divide wins. Version 0.2 chooses in the same way for whole
// machines, with model-parallel ranks counted as one device. If the result does not fit this job's devices,
// they get a batch of their own. elastic_batch_of_job() first compares the section with the scheduler's.
#include "deepspeed/config/tools/elastic_batch.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>

#include "deepspeed/base/env.h"
#include "deepspeed/base/error.h"

namespace deepspeed::config {
namespace {

// Highly composite numbers: each has more divisors than every smaller number (OEIS A002182).
constexpr int64_t kHighlyComposite[] = {
    1,     2,     4,     6,      12,     24,     36,     48,     60,     120,    180,    240,   360,
    720,   840,   1260,  1680,   2520,   5040,   7560,   10080,  15120,  20160,  25200,  27720, 45360,
    50400, 55440, 83160, 110880, 166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720};
constexpr const char* kElasticityVariable = "DEEPSPEED_ELASTICITY_CONFIG";

/// Returns the largest product, at most `most`, of `base` and a highly composite number.
int64_t candidate_of(int64_t base, int64_t most) {
  const auto above = std::upper_bound(std::begin(kHighlyComposite), std::end(kHighlyComposite), most / base);
  return base * *std::prev(above);
}

std::set<int64_t> counts_that_divide(int64_t batch, const std::vector<int64_t>& micro, int64_t fewest,
                                     int64_t most) {
  std::set<int64_t> counts;
  for (const int64_t size : micro) {
    if (batch % size != 0) continue;
    const int64_t passes = batch / size;
    for (int64_t count = 1; count * count <= passes; ++count) {
      if (passes % count != 0) continue;
      for (const int64_t divisor : {count, passes / count}) {
        if (divisor >= fewest && divisor <= most) counts.insert(divisor);
      }
    }
  }
  return counts;
}

/// Chooses by the rules of version 0.1. The batch has at most `most_samples`, for `fewest` to `most` devices.
ElasticBatch choose_batch(const std::vector<int64_t>& micro, int64_t most_samples, int64_t fewest,
                          int64_t most, bool prefers_larger) {
  const int64_t largest = *std::max_element(micro.begin(), micro.end());
  if (largest > most_samples) {
    raise<ConfigError>("elasticity.micro_batch_sizes: got ", largest, ", expected at most ", most_samples,
                       ", the share of elasticity.max_train_batch_size");
  }
  std::vector<int64_t> bases = micro;
  int64_t multiple = 1;
  for (const int64_t size : micro) {
    if (multiple <= most_samples) multiple = std::lcm(multiple, size);
  }
  bases.push_back(multiple);
  ElasticBatch best;
  for (const int64_t base : bases) {
    if (base > most_samples) continue;
    const int64_t batch = candidate_of(base, most_samples);
    const auto counts = counts_that_divide(batch, micro, fewest, most);
    const bool is_better = counts.size() > best.valid_counts.size() ||
                           (counts.size() == best.valid_counts.size() && best.train_batch_size > 0 &&
                            (prefers_larger ? batch > best.train_batch_size : batch < best.train_batch_size));
    if (is_better || best.train_batch_size == 0) best = {batch, {counts.begin(), counts.end()}, 0};
  }
  return best;
}

/// Returns the largest micro batch that divides `samples`, a device's share; 0 if none does.
/// prefer_larger_batch has no influence.
int64_t micro_batch_of(const ElasticRules& rules, int64_t samples) {
  int64_t chosen = 0;
  for (const int64_t size : rules.micro_batch_sizes) {
    if (samples % size == 0) chosen = std::max(chosen, size);
  }
  return chosen;
}

void require_a_count(const ElasticBatch& batch, const ElasticRules& rules) {
  if (!batch.valid_counts.empty()) return;
  raise<ConfigError>("elasticity: no number of devices from min_gpus, ", rules.min_gpus, ", to max_gpus, ",
                     rules.max_gpus, ", divides a batch of at most max_train_batch_size, ",
                     rules.max_train_batch_size, ", into micro batches; expected a wider range, or a larger ",
                     "batch");
}

/// Chooses by the rules of version 0.2, in which only whole machines join and leave.
ElasticBatch choose_batch_of_nodes(const ElasticRules& rules, int64_t num_devices) {
  if (rules.num_gpus_per_node % rules.model_parallel_size != 0) {
    raise<ConfigError>("elasticity.model_parallel_size: got ", rules.model_parallel_size,
                       ", expected a divisor of elasticity.num_gpus_per_node, ", rules.num_gpus_per_node);
  }
  const int64_t of_node = rules.num_gpus_per_node / rules.model_parallel_size;
  ElasticBatch batch = choose_batch(rules.micro_batch_sizes, rules.max_train_batch_size / of_node,
                                    std::max<int64_t>(1, rules.min_gpus / rules.num_gpus_per_node),
                                    rules.max_gpus / rules.num_gpus_per_node, rules.prefer_larger_batch);
  batch.train_batch_size *= of_node;
  for (int64_t& count : batch.valid_counts) count *= of_node;
  if (num_devices == 0) {
    require_a_count(batch, rules);
    return batch;
  }
  if (num_devices % rules.model_parallel_size != 0) return batch;
  const int64_t ranks = num_devices / rules.model_parallel_size;
  if (std::find(batch.valid_counts.begin(), batch.valid_counts.end(), ranks) != batch.valid_counts.end()) {
    batch.micro_batch_size = micro_batch_of(rules, batch.train_batch_size / ranks);
    return batch;
  }
  // If the batch does not fit this number of devices, the number gets a batch of its own.
  std::optional<int64_t> chosen;
  for (const int64_t size : rules.micro_batch_sizes) {
    const int64_t pass = size * ranks;
    const int64_t candidate = pass > 0 ? rules.max_train_batch_size / pass * pass : 0;
    if (candidate == 0) continue;
    const bool is_better = !chosen || (rules.prefer_larger_batch ? candidate > *chosen : candidate < *chosen);
    if (is_better) chosen = candidate;
  }
  if (!chosen) {
    raise<ConfigError>("elasticity.max_train_batch_size: got ", rules.max_train_batch_size, ", which ",
                       num_devices, " devices exceed with each of elasticity.micro_batch_sizes");
  }
  return {*chosen, {ranks}, micro_batch_of(rules, *chosen / ranks)};
}

void check_scheduler(const ElasticRules& rules) {
  const auto text = env::get(kElasticityVariable);
  if (!text) return;
  const Json section = Json::parse(*text, nullptr, false);
  if (!section.is_object())
    raise<ConfigError>(kElasticityVariable, ": got '", text->substr(0, 80),
                       "', expected the section as JSON");
  Json agreed = Json::object();  // a scheduler may have keys of its own beside these
  for (const char* key : {"max_train_batch_size", "micro_batch_sizes", "version"}) {
    if (section.contains(key)) agreed[key] = section[key];
  }
  const ElasticRules expected = ElasticRules::from_json(agreed);
  const auto differ = [](const char* key) {
    raise<ConfigError>("elasticity.", key, ": differs from the scheduler's value (the variable ",
                       kElasticityVariable, "); set both to the same value");
  };
  if (expected.max_train_batch_size != rules.max_train_batch_size) differ("max_train_batch_size");
  if (expected.micro_batch_sizes != rules.micro_batch_sizes) differ("micro_batch_sizes");
  if (expected.version != rules.version) differ("version");
}

}  // namespace

ElasticBatch elastic_batch(const ElasticRules& rules, int64_t num_devices) {
  if (rules.version != 0.1) return choose_batch_of_nodes(rules, num_devices);
  ElasticBatch batch = choose_batch(rules.micro_batch_sizes, rules.max_train_batch_size, rules.min_gpus,
                                    rules.max_gpus, rules.prefer_larger_batch);
  require_a_count(batch, rules);
  const auto& valid = batch.valid_counts;
  if (num_devices > 0 && std::find(valid.begin(), valid.end(), num_devices) != valid.end()) {
    batch.micro_batch_size = micro_batch_of(rules, batch.train_batch_size / num_devices);
  }
  return batch;
}

ElasticBatch elastic_batch_of_job(const ElasticRules& rules, int64_t num_devices) {
  check_scheduler(rules);
  const ElasticBatch batch = elastic_batch(rules, num_devices);
  if (batch.micro_batch_size > 0) return batch;
  std::string valid;
  for (const int64_t count : batch.valid_counts) valid += (valid.empty() ? "" : ", ") + std::to_string(count);
  const bool counts_ranks = rules.version != 0.1 && rules.model_parallel_size > 1;
  raise<ConfigError>(
      "elasticity: ", num_devices, " devices do not fit a batch of ", batch.train_batch_size, ", expected ",
      counts_ranks ? message(rules.model_parallel_size, " times one of: ") : "one of: ", valid);
}

}  // namespace deepspeed::config
