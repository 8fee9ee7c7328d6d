// Turns the config section `scheduler` into a schedule, with one make_...() function per type.
//
// The parameters are read against the type's table (config/training/scheduler_types.cpp), which checks names
// and ranges and fills in defaults. A rate may be one number or one per group. DeepSpeed's own schedules
// write their first rates at construction, unless `last_batch_iteration` makes them start later (make_own()).
// torch's schedules are rules on the previous rate (chained_lr.h).
#include "deepspeed/optim/schedules/lr_scheduler_factory.h"

#include <map>
#include <utility>

#include "deepspeed/base/error.h"
#include "deepspeed/config/table/named_type.h"
#include "deepspeed/config/table/nearest_key.h"
#include "deepspeed/config/table/read.h"
#include "deepspeed/optim/schedules/chained_lr.h"
#include "deepspeed/optim/schedules/lr_range_test.h"
#include "deepspeed/optim/schedules/lr_scheduler_adapter.h"
#include "deepspeed/optim/schedules/one_cycle.h"
#include "deepspeed/optim/schedules/warmup_lr.h"

namespace deepspeed::optim {
namespace {

using Groups = std::vector<ParamGroup>;
constexpr const char* kScheduleParamsPath = "scheduler.params";

// Holds the parameters of one schedule, read against its table. null means absent and without a default.
struct ScheduleParameters {
  Json values;

  double number(const char* key) const { return values[key].get<double>(); }
  int64_t whole(const char* key) const { return values[key].get<int64_t>(); }
  int64_t whole(const char* key, int64_t where_absent) const {
    return values[key].is_null() ? where_absent : whole(key);
  }

  // Returns one number per group.
  std::vector<double> rates(const char* key, const Groups& groups) const {
    const Json& value = values[key];
    if (value.is_number()) return std::vector<double>(groups.size(), value.get<double>());
    if (value.size() != groups.size()) {
      raise<ConfigError>(kScheduleParamsPath, ".", key, ": got ", value.size(),
                         " numbers, expected one for each of the ", groups.size(), " parameter groups");
    }
    return value.get<std::vector<double>>();
  }
};

// Makes one of DeepSpeed's schedules, which may start at a step named in the config. As in DeepSpeed the
// groups then keep their own rates until the first step.
template <class Schedule, class... Arguments>
std::unique_ptr<LrScheduler> make_own(const ScheduleParameters& params, Groups& groups,
                                      Arguments&&... arguments) {
  const Groups own = groups;
  auto schedule = std::make_unique<Schedule>(groups, std::forward<Arguments>(arguments)...);
  const int64_t begun = params.whole("last_batch_iteration");
  if (begun < 0) return schedule;
  for (size_t i = 0; i < groups.size(); ++i) groups[i].options = own[i].options;
  schedule->begin_at(begun);
  return schedule;
}

Warmup warmup_of(const ScheduleParameters& params) {
  const bool log = params.values["warmup_type"] == "log";
  return {params.whole("warmup_num_steps"), log ? Warmup::Shape::kLog : Warmup::Shape::kLinear};
}

std::unique_ptr<LrScheduler> make_range_test(const ScheduleParameters& params, Groups& groups) {
  return make_own<LrRangeTest>(
      params, groups, params.rates("lr_range_test_min_lr", groups), params.whole("lr_range_test_step_size"),
      params.number("lr_range_test_step_rate"), params.values["lr_range_test_staircase"].get<bool>());
}

std::unique_ptr<LrScheduler> make_one_cycle(const ScheduleParameters& params, Groups& groups) {
  OneCycleOptions options;
  options.min_lr = params.rates("cycle_min_lr", groups);
  options.max_lr = params.rates("cycle_max_lr", groups);
  options.decay_lr_rate = params.number("decay_lr_rate");
  options.first_step_size = params.whole("cycle_first_step_size");
  options.second_step_size = params.whole("cycle_second_step_size", options.first_step_size);
  options.first_stair_count = params.whole("cycle_first_stair_count");
  options.second_stair_count = params.whole("cycle_second_stair_count", options.first_stair_count);
  options.decay_step_size = params.whole("decay_step_size");
  options.momentum = params.values["cycle_momentum"].get<bool>();
  options.min_mom = params.rates("cycle_min_mom", groups);
  options.max_mom = params.rates("cycle_max_mom", groups);
  options.decay_mom_rate = params.number("decay_mom_rate");
  return make_own<OneCycle>(params, groups, options);
}

std::unique_ptr<LrScheduler> make_warmup(const ScheduleParameters& params, Groups& groups) {
  std::vector<double> max_lr;
  for (const ParamGroup& group : groups) max_lr.push_back(group.lr());
  if (!params.values["warmup_max_lr"].is_null()) max_lr = params.rates("warmup_max_lr", groups);
  return make_own<WarmupLr>(params, groups, params.rates("warmup_min_lr", groups), max_lr, warmup_of(params));
}

std::unique_ptr<LrScheduler> make_warmup_decay(const ScheduleParameters& params, Groups& groups) {
  return make_own<WarmupDecayLr>(params, groups, params.rates("warmup_min_lr", groups),
                                 params.rates("warmup_max_lr", groups), warmup_of(params),
                                 params.whole("total_num_steps"));
}

std::unique_ptr<LrScheduler> make_warmup_cosine(const ScheduleParameters& params, Groups& groups) {
  return make_own<WarmupCosineLr>(params, groups, warmup_of(params), params.number("warmup_min_ratio"),
                                  params.whole("total_num_steps"), params.number("cos_min_ratio"));
}

LrRule step_rule(const ScheduleParameters& params) {
  return step_lr(params.whole("step_size"), params.number("gamma"));
}

LrRule multi_step_rule(const ScheduleParameters& params) {
  return multi_step_lr(params.values["milestones"].get<std::vector<int64_t>>(), params.number("gamma"));
}

LrRule constant_rule(const ScheduleParameters& params) {
  return constant_lr(params.number("factor"), params.whole("total_iters"));
}

LrRule linear_rule(const ScheduleParameters& params) {
  return linear_lr(params.number("start_factor"), params.number("end_factor"), params.whole("total_iters"));
}

LrRule exponential_rule(const ScheduleParameters& params) { return exponential_lr(params.number("gamma")); }

LrRule polynomial_rule(const ScheduleParameters& params) {
  return polynomial_lr(params.whole("total_iters"), params.number("power"));
}

LrRule cosine_annealing_rule(const ScheduleParameters& params) {
  return cosine_annealing_lr(params.whole("T_max"), params.number("eta_min"));
}

template <LrRule (*make_rule)(const ScheduleParameters&)>
std::unique_ptr<LrScheduler> make_chained(const ScheduleParameters& params, Groups& groups) {
  return std::make_unique<ChainedLr>(groups, make_rule(params));
}

using MakeSchedule = std::unique_ptr<LrScheduler> (*)(const ScheduleParameters&, Groups&);

const std::map<std::string, MakeSchedule>& schedule_makers() {
  static const std::map<std::string, MakeSchedule> schedule_makers = {
      {"LRRangeTest", make_range_test},
      {"OneCycle", make_one_cycle},
      {"WarmupLR", make_warmup},
      {"WarmupDecayLR", make_warmup_decay},
      {"WarmupCosineLR", make_warmup_cosine},
      {"StepLR", make_chained<step_rule>},
      {"MultiStepLR", make_chained<multi_step_rule>},
      {"ConstantLR", make_chained<constant_rule>},
      {"LinearLR", make_chained<linear_rule>},
      {"ExponentialLR", make_chained<exponential_rule>},
      {"PolynomialLR", make_chained<polynomial_rule>},
      {"CosineAnnealingLR", make_chained<cosine_annealing_rule>}};
  return schedule_makers;
}

std::string known_schedules() {
  std::string names;
  for (const std::string& name : config::type_names(config::scheduler_types()))
    names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace

std::unique_ptr<LrScheduler> make_lr_scheduler(const std::string& type, const Json& params, Groups& groups) {
  const auto& types = config::scheduler_types();
  if (const config::NamedType* named = config::find_type(types, type)) {
    return schedule_makers().at(named->name)({config::read_params(*named, params, kScheduleParamsPath)},
                                             groups);
  }
  if (type == "ReduceLROnPlateau") refuse_plateau_scheduler();
  const std::string nearest = config::nearest_key(type, config::type_names(types));
  raise<ConfigError>("scheduler.type: \"", type, "\" is unknown",
                     nearest.empty() ? std::string() : message(", did you mean \"", nearest, "\"?"),
                     "; there are ", known_schedules(),
                     "; others, of torch or of your own, are passed to initialize() as lr_scheduler");
}

}  // namespace deepspeed::optim
