// The table of schedules that a config can name: DeepSpeed's own, then those of torch.
//
// Each type lists its arguments as fields, with defaults and ranges. The factory (optim/schedules) reads the
// arguments against this table, and the help and docs/config.md are written from it.
#include <algorithm>
#include <utility>

#include "deepspeed/config/table/coerce.h"
#include "deepspeed/config/table/named_type.h"

namespace deepspeed::config {
namespace {

/// Accepts a rate: one number for all groups, or one per group.
Option one_or_one_a_group() {
  const auto is_number = [](const Json& value) { return value.is_number(); };
  const auto accepts = [is_number](const Json& value) {
    return value.is_number() || (value.is_array() && std::all_of(value.begin(), value.end(), is_number));
  };
  return accepted_if(accepts, "a number, or a list of one number a parameter group");
}

Field rates(const char* key, Json default_value, const char* meaning) {
  return any(key, std::move(default_value), meaning, {one_or_one_a_group()});
}

Field required_rates(const char* key, const char* meaning) {
  return any(key, 0.0, meaning, {one_or_one_a_group(), required()});
}

Field warmup_num_steps() {
  return integer("warmup_num_steps", 1000, "Steps of the warm-up; 0 and 1 count as 2.", {at_least(0)});
}

Field warmup_type() {
  return text("warmup_type", "log", "The shape of the warm-up.", {one_of({"log", "linear"})});
}

Field total_num_steps() {
  return integer("total_num_steps", 0,
                 "Steps of the whole training; 0, which clients fill in for evaluation alone, takes no step.",
                 {at_least(0), required()});
}

Field last_batch_iteration() {
  return integer("last_batch_iteration", -1,
                 "The step that it begins after; the groups have their own rates before the next one. -1: it "
                 "begins anew.",
                 {at_least(-1)});
}

Field gamma(Json default_value, std::initializer_list<Option> options) {
  return number("gamma", std::move(default_value), "What the rate is multiplied by.", options);
}

Field total_iters(const char* meaning) { return integer("total_iters", 5, meaning, {at_least(1)}); }

/// Accepts only numbers of at most 1.
Option at_most_all() {
  return accepted_if([](const Json& value) { return as_float(value).value_or(2) <= 1; }, "at most 1");
}

constexpr const char* kFrom = "Where the warm-up begins.";

NamedType lr_range_test() {
  return {"LRRangeTest",
          "A rate that grows from step to step, to find the largest that still trains.",
          {rates("lr_range_test_min_lr", 1e-3, "The first rate."),
           integer("lr_range_test_step_size", 2000, "Steps of an interval.", {at_least(1)}),
           number("lr_range_test_step_rate", 1.0, "What an interval adds, in units of the first rate."),
           boolean("lr_range_test_staircase", false, "Grow at the ends of intervals only."),
           last_batch_iteration()}};
}

NamedType one_cycle() {
  return {"OneCycle",
          "The rate goes up and down once, the momentum against it; then both decay.",
          {required_rates("cycle_min_lr", "The rate at the cycle's ends."),
           required_rates("cycle_max_lr", "The rate at its top."),
           number("decay_lr_rate", 0.0, "How fast the rate decays after the cycle."),
           integer("cycle_first_step_size", 2000, "Steps of the way up.", {at_least(1)}),
           integer("cycle_second_step_size", nullptr, "Steps of the way down; as many as up, where absent.",
                   {at_least(0)}),
           integer("cycle_first_stair_count", 0, "Stairs of the way up; 0: none.", {at_least(0)}),
           integer("cycle_second_stair_count", nullptr,
                   "Stairs of the way down; as many as up, where absent.", {at_least(0)}),
           integer("decay_step_size", 0, "Steps of an interval of the decay; 0: no decay.", {at_least(0)}),
           boolean("cycle_momentum", true,
                   "Move the momentum too: betas, of optimizers that have them; the second is 0.99 then."),
           rates("cycle_min_mom", 0.8, "The momentum at the cycle's top."),
           rates("cycle_max_mom", 0.9, "The momentum at its ends."),
           number("decay_mom_rate", 0.0, "How fast the momentum grows after the cycle; it stays below 1."),
           last_batch_iteration()}};
}

NamedType warmup_lr() {
  return {"WarmupLR",
          "A warm-up, then a constant rate.",
          {rates("warmup_min_lr", 0.0, kFrom),
           rates("warmup_max_lr", nullptr, "Where it ends; each group's own rate, where absent."),
           warmup_num_steps(), warmup_type(), last_batch_iteration()}};
}

NamedType warmup_decay_lr() {
  return {
      "WarmupDecayLR",
      "A warm-up, then linearly down to where it began.",
      {total_num_steps(), rates("warmup_min_lr", 0.0, kFrom), rates("warmup_max_lr", 1e-3, "Where it ends."),
       warmup_num_steps(), warmup_type(), last_batch_iteration()}};
}

NamedType warmup_cosine_lr() {
  return {
      "WarmupCosineLR",
      "A warm-up to each group's own rate, then down along a cosine.",
      {total_num_steps(), number("warmup_min_ratio", 0.0, "Where the warm-up begins, in units of that rate."),
       warmup_num_steps(), number("cos_min_ratio", 1e-4, "Where the cosine ends, in units of that rate."),
       warmup_type(), last_batch_iteration()}};
}

NamedType step_lr() {
  return {"StepLR",
          "torch's: the rate is multiplied after every step_size steps.",
          {integer("step_size", 1, "Steps between two changes.", {at_least(1), required()}),
           gamma(0.1, {at_least(0)})}};
}

NamedType multi_step_lr() {
  return {"MultiStepLR",
          "torch's: the rate is multiplied at certain steps.",
          {integers("milestones", Json::array(), "These steps.", {at_least(0), required()}),
           gamma(0.1, {at_least(0)})}};
}

NamedType constant_lr() {
  return {"ConstantLR",
          "torch's: a part of the rate at first, then all of it.",
          {number("factor", 1.0 / 3, "That part.", {above(0), at_most_all()}), total_iters("Steps of it.")}};
}

NamedType linear_lr() {
  return {"LinearLR",
          "torch's: the rate goes in a line from one multiple of it to another.",
          {number("start_factor", 1.0 / 3, "Where it begins.", {above(0), at_most_all()}),
           number("end_factor", 1.0, "Where it ends.", {between(0, 1)}), total_iters("Steps in between.")}};
}

NamedType exponential_lr() {
  return {"ExponentialLR",
          "torch's: the rate is multiplied after every step.",
          {gamma(0.0, {at_least(0), required()})}};
}

NamedType polynomial_lr() {
  return {"PolynomialLR",
          "torch's: the rate falls to 0 along a polynomial.",
          {total_iters("Steps until then."), number("power", 1.0, "The polynomial's.", {at_least(0)})}};
}

NamedType cosine_annealing_lr() {
  return {"CosineAnnealingLR",
          "torch's: the rate falls along a cosine, and rises again.",
          {integer("T_max", 1, "Steps of the way down.", {at_least(1), required()}),
           number("eta_min", 0.0, "The rate at its end.", {at_least(0)})}};
}

}  // namespace

const std::vector<NamedType>& scheduler_types() {
  static const std::vector<NamedType> types = {lr_range_test(),   one_cycle(),        warmup_lr(),
                                               warmup_decay_lr(), warmup_cosine_lr(), step_lr(),
                                               multi_step_lr(),   constant_lr(),      linear_lr(),
                                               exponential_lr(),  polynomial_lr(),    cosine_annealing_lr()};
  return types;
}

}  // namespace deepspeed::config
