#include "deepspeed/optim/lr_scheduler_factory.h"

#include "deepspeed/base/error.h"
#include "deepspeed/config/nearest_key.h"
#include "deepspeed/optim/json_params.h"
#include "deepspeed/optim/lr_range_test.h"
#include "deepspeed/optim/one_cycle.h"
#include "deepspeed/optim/warmup_lr.h"

namespace deepspeed::optim {
namespace {

using Groups = std::vector<ParamGroup>;

int64_t at_least(int64_t least, JsonParams& params, const std::string& key, int64_t fallback) {
  const int64_t value = params.whole(key, fallback);
  if (value < least) {
    params.fail(key, message(value, ", expected at least ", least));
  }
  return value;
}

int64_t required_whole(JsonParams& params, const std::string& key) {
  if (!params.contains(key)) {
    params.fail(key, "is missing and has no default");
  }
  return at_least(1, params, key, 1);
}

Warmup warmup_of(JsonParams& params) {
  const std::string type = params.text("warmup_type", "log");
  if (type != "log" && type != "linear") {
    params.fail("warmup_type", message("'", type, "', expected \"log\" or \"linear\""));
  }
  return {at_least(1, params, "warmup_num_steps", 1000),
          type == "log" ? Warmup::Shape::kLog : Warmup::Shape::kLinear};
}

std::unique_ptr<LrScheduler> make_range_test(JsonParams& params, Groups& groups) {
  const auto min_lr = params.numbers("lr_range_test_min_lr", std::vector<double>(groups.size(), 1e-3));
  const int64_t step_size = at_least(1, params, "lr_range_test_step_size", 2000);
  const double step_rate = params.number("lr_range_test_step_rate", 1.0);
  const bool staircase = params.flag("lr_range_test_staircase", false);
  params.reject_unknown();
  return std::make_unique<LrRangeTest>(groups, min_lr, step_size, step_rate, staircase);
}

std::unique_ptr<LrScheduler> make_one_cycle(JsonParams& params, Groups& groups) {
  OneCycleOptions options;
  options.min_lr = params.required_numbers("cycle_min_lr", groups.size());
  options.max_lr = params.required_numbers("cycle_max_lr", groups.size());
  options.decay_lr_rate = params.number("decay_lr_rate", 0);
  options.first_step_size = at_least(1, params, "cycle_first_step_size", 2000);
  options.second_step_size = at_least(0, params, "cycle_second_step_size", options.first_step_size);
  options.first_stair_count = at_least(0, params, "cycle_first_stair_count", 0);
  options.second_stair_count = at_least(0, params, "cycle_second_stair_count", options.first_stair_count);
  options.decay_step_size = at_least(0, params, "decay_step_size", 0);
  options.momentum = params.flag("cycle_momentum", true);
  options.min_mom = params.number("cycle_min_mom", 0.8);
  options.max_mom = params.number("cycle_max_mom", 0.9);
  options.decay_mom_rate = params.number("decay_mom_rate", 0);
  params.reject_unknown();
  return std::make_unique<OneCycle>(groups, options);
}

std::unique_ptr<LrScheduler> make_warmup(JsonParams& params, Groups& groups) {
  std::vector<double> own_lr;
  for (const ParamGroup& group : groups) {
    own_lr.push_back(group.lr());
  }
  const auto min_lr = params.numbers("warmup_min_lr", std::vector<double>(groups.size(), 0.0));
  const auto max_lr = params.numbers("warmup_max_lr", own_lr);
  const Warmup warmup = warmup_of(params);
  params.reject_unknown();
  return std::make_unique<WarmupLr>(groups, min_lr, max_lr, warmup);
}

std::unique_ptr<LrScheduler> make_warmup_decay(JsonParams& params, Groups& groups) {
  const int64_t total = required_whole(params, "total_num_steps");
  const auto min_lr = params.numbers("warmup_min_lr", std::vector<double>(groups.size(), 0.0));
  const auto max_lr = params.numbers("warmup_max_lr", std::vector<double>(groups.size(), 1e-3));
  const Warmup warmup = warmup_of(params);
  params.reject_unknown();
  return std::make_unique<WarmupDecayLr>(groups, min_lr, max_lr, warmup, total);
}

std::unique_ptr<LrScheduler> make_warmup_cosine(JsonParams& params, Groups& groups) {
  const int64_t total = required_whole(params, "total_num_steps");
  const double warmup_min_ratio = params.number("warmup_min_ratio", 0.0);
  const double cos_min_ratio = params.number("cos_min_ratio", 1e-4);
  const Warmup warmup = warmup_of(params);
  params.reject_unknown();
  return std::make_unique<WarmupCosineLr>(groups, warmup, warmup_min_ratio, total, cos_min_ratio);
}

using Maker = std::unique_ptr<LrScheduler> (*)(JsonParams&, Groups&);
const std::vector<std::pair<std::string, Maker>>& makers() {
  static const std::vector<std::pair<std::string, Maker>> table = {{"LRRangeTest", make_range_test},
                                                                   {"OneCycle", make_one_cycle},
                                                                   {"WarmupLR", make_warmup},
                                                                   {"WarmupDecayLR", make_warmup_decay},
                                                                   {"WarmupCosineLR", make_warmup_cosine}};
  return table;
}

}  // namespace

std::unique_ptr<LrScheduler> make_lr_scheduler(const std::string& type, const Json& params, Groups& groups) {
  std::vector<std::string> names;
  for (const auto& [name, make] : makers()) {
    names.push_back(name);
    if (name == type) {
      JsonParams reader("scheduler.params", params);
      return make(reader, groups);
    }
  }
  const std::string nearest = config::nearest_key(type, names);
  raise<ConfigError>("config", "scheduler.type: \"", type, "\" is unknown",
                     nearest.empty() ? std::string() : message(", did you mean \"", nearest, "\"?"),
                     "; schedules of torch or of your own are passed to initialize() as lr_scheduler");
}

}  // namespace deepspeed::optim
