// First the method, then keys that it does not take, then its values, at last what they must be to each
// other. Determined 0.38 has two spellings of the length: max_length, and time_metric with max_time. The
// second one means the first if the time metric is batches, records or epochs, and is refused otherwise,
// since a trial's progress is known in these alone.
#include "deepspeed/trial/experiment/read_searcher.h"

#include <algorithm>

#include "deepspeed/base/json_file.h"

namespace deepspeed::trial {
namespace {

const std::vector<std::string> kMethodNames = {"single", "random", "grid", "adaptive_asha"};
const std::vector<std::string> kModeNames = {"aggressive", "standard", "conservative", "sync"};

/// Says which methods take a key, by their first letters.
struct MethodKey {
  std::string key;
  std::string methods;
};

const std::vector<MethodKey> kMethodKeys = {
    {"max_trials", "ra"}, {"max_concurrent_trials", "rga"},
    {"divisor", "a"},     {"max_rungs", "a"},
    {"mode", "a"},        {"stop_once", "a"},
    {"time_metric", "a"}, {"max_time", "a"},
};

std::vector<std::string> searcher_keys() {
  std::vector<std::string> keys = {"name", "metric", "smaller_is_better", "max_length"};
  for (const MethodKey& row : kMethodKeys) keys.push_back(row.key);
  return keys;
}

SearchMethod read_method(const YamlSection& section) {
  const Json* name = section.find("name");
  if (name != nullptr) {
    const std::string got = name->is_string() ? name->get<std::string>() : "";
    if (got == "async_halving" || got == "sync_halving") {
      section.fail("name", "got \"", got,
                   "\", expected adaptive_asha with mode: ", got == "sync_halving" ? "sync" : "aggressive",
                   ", which is this search");
    }
  }
  const auto method = section.choice("name", kMethodNames);
  if (!method) section.fail_value("name", "single, random, grid or adaptive_asha");
  return static_cast<SearchMethod>(*method);
}

void refuse_keys_of_other_methods(const YamlSection& section, SearchMethod method) {
  const std::string& name = kMethodNames[static_cast<size_t>(method)];
  for (const MethodKey& row : kMethodKeys) {
    if (section.find(row.key) == nullptr || row.methods.find(name[0]) != std::string::npos) continue;
    std::string others;
    for (const std::string& other : kMethodNames) {
      if (row.methods.find(other[0]) != std::string::npos) others += (others.empty() ? "" : ", ") + other;
    }
    section.fail(row.key, "the searcher ", name, " has no such key, expected none: it belongs to ", others);
  }
}

/// Reads the length from one of its two spellings. Returns the key that gave it.
std::string read_max_length(const YamlSection& section, SearcherConfig& config) {
  const bool has_time = section.find("time_metric") != nullptr || section.find("max_time") != nullptr;
  if (!has_time) {
    const auto length = section.length("max_length", 1);
    if (!length) {
      section.fail_value("max_length",
                         "a whole number of batches, or {batches: N}, {records: N} or {epochs: N}");
    }
    config.max_length = *length;
    return "max_length";
  }
  if (section.find("max_length") != nullptr)
    section.fail("max_length", "given beside time_metric and max_time, expected one of the two");
  const auto unit = section.choice("time_metric", {"batches", "records", "epochs"});
  if (!unit) section.fail_value("time_metric", "batches, records or epochs");
  const auto amount = section.whole("max_time", 1);
  if (!amount) section.fail_value("max_time", "how far a trial is trained, in units of time_metric");
  config.max_length = {*amount, static_cast<LengthUnit>(*unit)};
  return "max_time";
}

/// Checks that each rung ends at a whole number of units.
void require_whole_rungs(const YamlSection& section, const std::string& key, const SearcherConfig& config) {
  const int64_t length = config.max_length.amount;
  const int64_t unit = whole_power(config.divisor, config.rungs - 1);
  if (length % unit == 0) return;
  int64_t rungs = config.rungs;
  while (length % whole_power(config.divisor, rungs - 1) != 0) --rungs;
  const int64_t below = length / unit * unit;
  section.fail(key, "got ", text_of(config.max_length), ", which ", config.rungs, " rungs of divisor ",
               config.divisor, " cut into ", unit, " parts, expected a multiple of ", unit, ", such as ",
               below > 0 ? message(below, " or ") : std::string(), below + unit, "; or max_rungs: ", rungs);
}

void read_asha(const YamlSection& section, SearcherConfig& config) {
  config.mode = static_cast<AshaMode>(section.choice("mode", kModeNames).value_or(size_t{1}));
  config.divisor = section.whole("divisor", 2, kMaxTrials).value_or(config.divisor);
  const int64_t max_rungs = section.whole("max_rungs", 1, 64).value_or(5);
  config.rungs = usable_rungs(max_rungs, config.divisor, config.max_trials);
  config.stop_once = section.flag("stop_once", false);
  if (config.stop_once && config.mode == AshaMode::kSync) {
    section.fail("stop_once", "got true with mode: sync, expected false: a trial waits until its rung is ",
                 "complete, and is not stopped before; or another mode");
  }
}

}  // namespace

ReadSearcher read_searcher(const YamlSection& experiment) {
  const auto section = experiment.section("searcher", searcher_keys());
  if (!section) experiment.fail_value("searcher", "a map with name, metric and max_length");
  ReadSearcher read;
  SearcherConfig& config = read.config;
  config.method = read_method(*section);
  refuse_keys_of_other_methods(*section, config.method);
  config.metric = section->text("metric", "");
  if (config.metric.empty()) section->fail_value("metric", "the name of a metric that the trials report");
  config.smaller_is_better = section->flag("smaller_is_better", true);
  read.length_key = read_max_length(*section, config);
  const auto max_trials = section->whole("max_trials", 1, kMaxTrials);
  const bool needs_trials =
      config.method == SearchMethod::kRandom || config.method == SearchMethod::kAdaptiveAsha;
  if (needs_trials && !max_trials) section->fail_value("max_trials", "the number of trials");
  config.max_trials = max_trials.value_or(1);
  const int64_t concurrent = config.method == SearchMethod::kSingle ? 1 : config.max_concurrent_trials;
  config.max_concurrent_trials = section->whole("max_concurrent_trials", 0).value_or(concurrent);
  if (config.method == SearchMethod::kAdaptiveAsha) {
    read_asha(*section, config);
    require_whole_rungs(*section, read.length_key, config);
  }
  return read;
}

}  // namespace deepspeed::trial
