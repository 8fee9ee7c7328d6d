// Every key of the tables: its default is accepted, another type refused, what does not exist yet refused as
// such.
#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/config/help.h"
#include "deepspeed/config/table/named_type.h"
#include "deepspeed/config/table/read.h"

#include "tests/config/load.h"
#include "tests/places/places.h"
#include "tests/support/error_of.h"

namespace deepspeed::config {
namespace {

using ::testing::HasSubstr;

using Visit = std::function<void(const Field&, const std::string& path, const Field& parent)>;

void walk_beside(const Field& parent, const std::string& path, const Visit& visit) {
  for (const Field& field : parent.children) {
    visit(field, join(path, field.key), parent);
    walk_beside(field, join(path, field.key), visit);
  }
}

/// A config with that key alone, and those that it cannot be without.
Json config_for(const std::string& path, const Field& field, const Field& parent, const Json& value) {
  Json config = config_with(path, value);
  const auto dot = path.rfind('.');
  if (dot == std::string::npos) return config;
  for (const Field& sibling : parent.children) {
    if (sibling.key == "enabled" && field.key != "enabled")
      config[pointer(path.substr(0, dot) + ".enabled")] = false;
  }
  return config;
}

/// Sections that are refused whatever they hold.
bool in_refused_section(const std::string& path) {
  for (const char* section : {"sparse_attention", "zero_optimization.zenflow"}) {
    if (path == section || path.starts_with(std::string(section) + ".")) return true;
  }
  return false;
}

TEST(Options, AcceptEveryDefault) {
  int keys = 0;
  walk_beside(all_options(), "", [&](const Field& field, const std::string& path, const Field& parent) {
    const bool takes_default =
        field.kind != Kind::kSection && (field.nullable || !field.default_value.is_null());
    if (!takes_default || in_refused_section(path)) return;
    if (path == "weight_quantization.enabled" || path == "allgather_size") return;
    if (path == "train_batch_size") return;  // null there leaves no batch size at all
    ++keys;
    const Json config = config_for(path, field, parent, field.default_value);
    EXPECT_EQ(load_error(config), "no error") << config;
  });
  EXPECT_GT(keys, 280);
}

TEST(Options, RefuseAnotherTypeForEveryKeyAndNameItsPath) {
  const Json wrong = Json::array({Json::array()});
  walk_beside(all_options(), "", [&](const Field& field, const std::string& path, const Field& parent) {
    if (field.kind == Kind::kAny) return;
    const std::string error = read_error(config_for(path, field, parent, wrong));
    EXPECT_THAT(error, HasSubstr("[config] " + path + ": got [[]], expected " + expected_value(field)));
    if (field.nullable) return;
    EXPECT_THAT(read_error(config_for(path, field, parent, nullptr)),
                HasSubstr(path + ": got null, expected "));
  });
}

TEST(Options, EndEveryRangeWhereItSays) {
  walk_beside(all_options(), "", [&](const Field& field, const std::string& path, const Field& parent) {
    const auto refused = [&](double value) {
      EXPECT_THAT(read_error(config_for(path, field, parent, value)), HasSubstr(path + ": got ")) << value;
    };
    if (field.range.minimum) refused(*field.range.minimum - (field.range.open ? 0 : 1));
    if (field.range.maximum) refused(*field.range.maximum + (field.range.open ? 0 : 1));
  });
}

TEST(Options, RefuseUnknownKeysInEverySection) {
  walk_beside(all_options(), "", [&](const Field& field, const std::string& path, const Field&) {
    if (field.kind != Kind::kSection || field.open) return;
    EXPECT_THAT(read_error(config_with(path + ".no_such_key", 1)),
                HasSubstr(path + ".no_such_key: unknown key"));
    EXPECT_THAT(read_error(config_with(path + ".no_such_key", "auto")), HasSubstr("unknown key"));
    const std::string known = field.children.back().key;
    EXPECT_THAT(read_error(config_with(path + "." + known + "x", 1)),
                HasSubstr("did you mean '" + path + "."));
  });
}

/// Another value of the field's type that the field's own range and choices accept.
Json another_value(const Field& field) {
  switch (field.kind) {
    case Kind::kBool:
      return field.default_value != true;
    case Kind::kInt:
      return (field.default_value.is_null() ? 0 : field.default_value.get<int64_t>()) + 2;
    case Kind::kString:
      for (const std::string& choice : field.choices) {
        if (choice != field.default_value) return choice;
      }
      return "another";
    case Kind::kAny:
      return "another";
    default:
      return Json::object();
  }
}

/// Configs in which something else is wrong too, and one in which nothing is.
Json surroundings() {
  return Json::parse(R"([
    {"train_batch_size": 8},
    {},
    {"train_batch_size": 7, "train_micro_batch_size_per_gpu": 4},
    {"train_batch_size": "auto", "gradient_accumulation_steps": 0},
    {"no_such_key": 1, "fp16": {"no_such_key": 1}},
    {"fp16": {"enabled": true}, "bf16": {"enabled": true}, "data_parallel_size": 5},
    {"zero_optimization": {"stage": 9, "offload_param": {"device": "nvme"}}},
    {"zero_optimization": {"stage": 3, "overlap_comm": true}, "gradient_allreduce_op": "sum",
     "managed_gradient_accumulation": false}
  ])");
}

TEST(Options, RefuseEveryMissingFeatureByName) {
  int features = 0;
  walk_beside(all_options(), "", [&](const Field& field, const std::string& path, const Field&) {
    if (!field.supported_values || (in_refused_section(path) && field.kind != Kind::kSection)) return;
    ++features;
    Json value = another_value(field);
    if (path == "weight_quantization.enabled") value = true;
    const std::string expected =
        field.refusal.empty() ? ": not supported yet, got " : ": not supported, got ";
    for (Json config : surroundings()) {
      config[pointer(path)] = value;
      EXPECT_THAT(load_error(config, 2), HasSubstr("[config] " + path + expected)) << config;
    }
  });
  EXPECT_GT(features, 45);
}

TEST(Options, RefuseMissingFeaturesByTheirNames) {
  EXPECT_THAT(load_error(R"({"tensor_parallel": {"tp": {"tp_size": 2}}})"),
              HasSubstr("tensor_parallel.tp.tp_size: not supported yet, got 2, supported so far: 1"));
  EXPECT_THAT(load_error(R"({"weight_quantization": {"num_bits": 4}})"),
              HasSubstr("weight_quantization.enabled: not supported yet, got true"));
  EXPECT_THAT(load_error(R"({"sparse_attention": {"mode": "no such mode"}})"),
              HasSubstr("not supported yet, got {\"mode\":\"no such mode\"}; leave the section out"));
}

TEST(Options, TakeDefaultsOfMissingFeaturesAndNameWrongTypes) {
  EXPECT_EQ(
      load_error(R"({"train_batch_size": 8, "elasticity": {"enabled": "no"}, "sequence_parallel_size": 1,
                           "tensor_parallel": {"autotp_size": "auto"}})"),
      "no error");
  EXPECT_THAT(load_error(R"({"train_batch_size": 8, "elasticity": {"enabled": "maybe"}})"),
              HasSubstr("elasticity.enabled: got \"maybe\", expected true or false"));
  EXPECT_THAT(load_error(R"({"train_batch_size": 8, "elasticity": null})"),
              HasSubstr("elasticity: got null"));
}

/// The lines in which two texts differ first.
std::string first_difference(const std::string& expected, const std::string& actual) {
  std::istringstream left(expected), right(actual);
  std::string a, b;
  do {
    a.clear();
    b.clear();
    std::getline(left, a);
    std::getline(right, b);
  } while (a == b && (left || right));
  return "expected: " + a + "\n  actual: " + b;
}

/// The whole surface of options, one line a key. A change of this file is a change of what users may write.
TEST(Options, AreThoseOfTheGoldenList) {
  std::ifstream file(testing::source_folder() / "tests/golden/config_options.txt");
  std::stringstream golden;
  golden << file.rdbuf();
  std::string actual;
  for (const std::string& line : option_list()) actual += line + "\n";
  const std::string written = testing::build_folder() / "config_options.txt";
  if (golden.str() != actual) std::ofstream(written) << actual;
  // Not EXPECT_EQ: of two long texts it prints both.
  EXPECT_TRUE(golden.str() == actual) << "the options changed; if that is meant, copy " << written
                                      << " to tests/golden/config_options.txt; first difference:\n"
                                      << first_difference(golden.str(), actual);
}

TEST(HelpText, IsThePageOfTheDocumentation) {
  std::ifstream file(testing::source_folder() / "docs/config.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_TRUE(page.str() == help_markdown())
      << "run deepspeed --help-config-markdown > docs/config.md; first difference:\n"
      << first_difference(page.str(), help_markdown());
}

TEST(HelpText, HasARowForEveryKey) {
  const std::string page = help_markdown();
  size_t rows = 0;
  for (size_t at = page.find("\n| `"); at != std::string::npos; at = page.find("\n| `", at + 1)) ++rows;
  EXPECT_EQ(rows, option_list().size());
  EXPECT_THAT(page, HasSubstr("| `stage` | a whole number from 0 to 3 | `0` | "));
  EXPECT_THAT(page, HasSubstr("\n## compression_training.head_pruning.shared_parameters\n"));
  EXPECT_THAT(page, HasSubstr("\n### optimizer.params of RMSprop\n"));
}

TEST(HelpText, ShowsASectionWithDefaultRangeAndMeaning) {
  const std::string text = help_text("zero_optimization");
  EXPECT_THAT(text, HasSubstr("zero_optimization.stage: a whole number from 0 to 3; default 0"));
  EXPECT_THAT(text, HasSubstr("\n    What is sharded"));
  EXPECT_THAT(text, HasSubstr("zero_optimization.offload_optimizer.device: one of none, cpu, nvme"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("fp16.enabled")));
  EXPECT_THAT(help_text(), HasSubstr("fp16.loss_scale"));
  EXPECT_THAT(help_text("seed"), HasSubstr("seed: a whole number of at least 0, or null; default null"));
}

TEST(HelpText, ShowsTheArgumentsOfEveryOptimizerAndSchedule) {
  const std::string text = help_text("optimizer");
  EXPECT_THAT(text, HasSubstr("optimizer.type: a string"));
  EXPECT_THAT(text, HasSubstr("optimizer.params[Lamb]:\n"));
  EXPECT_THAT(text,
              HasSubstr("optimizer.params[Muon].betas: a list of two numbers in [0, 1); default [0.9,0.95]"));
  EXPECT_THAT(text, HasSubstr("optimizer.params[RMSprop].alpha: a number of at least 0; default 0.99"));
  EXPECT_THAT(text, HasSubstr("it needs zero_allow_untested_optimizer"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("scheduler")));
  const std::string schedules = help_text("scheduler.params");
  EXPECT_THAT(
      schedules,
      HasSubstr("scheduler.params[WarmupDecayLR].total_num_steps: a whole number of at least 0; required"));
  EXPECT_THAT(schedules,
              HasSubstr("[OneCycle].cycle_min_lr: a number, or a list of one number a parameter group"));
  EXPECT_THAT(help_text("optimizer.params[AdamW]"), ::testing::Not(HasSubstr("[Adam]")));
  for (const auto* types : {&optimizer_types(), &scheduler_types()}) {
    for (const NamedType& type : *types) {
      EXPECT_THAT(help_text("optimizer") + help_text("scheduler"), HasSubstr(".params[" + type.name + "]:"));
      for (const Field& field : type.params) EXPECT_FALSE(field.meaning.empty()) << type.name << field.key;
    }
  }
}

TEST(HelpText, SaysWhereAKeyActsInPlaceOfThatItHasNoEffect) {
  const std::string page = help_markdown();
  EXPECT_THAT(page, HasSubstr("Elements fetched ahead of their use. Only stage 3 uses it. |"));
  EXPECT_THAT(page, HasSubstr("| `ratio` | a number from 0 to 1 | `1.0` | The part of the parameters"));
  EXPECT_THAT(help_text("zero_optimization.stage3_max_live_parameters"),
              HasSubstr("; default 1000000000; only stage 3 uses it; also max_live_parameters\n"));
  EXPECT_THAT(help_text("graph_harvesting"), HasSubstr("; no effect: a step is a few fused kernels"));
  walk_beside(all_options(), "", [&](const Field& field, const std::string& path, const Field&) {
    if (field.no_effect.empty()) return;
    const bool never_acts = help_text(path).find("no effect") != std::string::npos;
    EXPECT_EQ(never_acts, !field.effective_where.has_value()) << path;
  });
}

/// The paths that the help shows, in its order.
std::vector<std::string> shown_paths(const std::string& subject) {
  std::vector<std::string> paths;
  std::istringstream lines(help_text(subject));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(" ")) paths.push_back(line.substr(0, line.find(':')));
  }
  return paths;
}

TEST(HelpText, FindsKeysByAPartOfTheirNamePathOrMeaning) {
  const auto rates = shown_paths("lr");
  EXPECT_EQ(rates.front(), "optimizer.params[Adam].lr");
  EXPECT_THAT(rates,
              ::testing::IsSupersetOf({"optimizer.params[SGD].lr", "optimizer.params[Adagrad].lr_decay",
                                       "scheduler.params[WarmupLR].warmup_min_lr",
                                       "scheduler.params[OneCycle].cycle_max_lr"}));
  EXPECT_THAT(rates, ::testing::Not(::testing::Contains("gradient_allreduce_op")));
  EXPECT_THAT(shown_paths("batch size"), ::testing::Contains("train_batch_size"));
  EXPECT_THAT(shown_paths("BatchSize"), ::testing::Contains("train_batch_size"));
  EXPECT_THAT(shown_paths("live-parameters"),
              ::testing::ElementsAre("zero_optimization.stage3_max_live_parameters"));
  EXPECT_THAT(shown_paths("adamw"), ::testing::Contains("optimizer.params[AdamW].betas"));
}

TEST(HelpText, FindsByMeaningLast) {
  const auto paths = shown_paths("offload");
  const auto at = [&](const char* path) {
    const auto found = std::find(paths.begin(), paths.end(), path);
    EXPECT_NE(found, paths.end()) << path;
    return found - paths.begin();
  };
  EXPECT_LT(at("zero_optimization.zenflow.offload"), at("zero_optimization.offload_param"));
  EXPECT_LT(at("zero_optimization.offload_param"), at("zero_optimization.offload_param.nvme_path"));
  EXPECT_LT(at("zero_optimization.offload_param.nvme_path"), at("zero_optimization.sub_group_size"));
}

TEST(HelpText, NamesTheNearestOnesOfAnUnknownOne) {
  const auto error_of = [](const char* subject) {
    return testing::error_of<UsageError>([&] { help_text(subject); });
  };
  EXPECT_THAT(error_of("zero_optimisation"), HasSubstr("did you mean 'zero_optimization'?"));
  EXPECT_THAT(error_of("max_relive_parameters"),
              HasSubstr("got \"max_relive_parameters\", expected a section"));
  EXPECT_THAT(error_of("betta"), HasSubstr("did you mean 'betas'?"));
  EXPECT_THAT(error_of("_"), HasSubstr("expected a section, a key or a part"));
  EXPECT_THAT(error_of("qqqqqqqqqqqqqqqqqqq"), ::testing::Not(HasSubstr("did you mean")));
}

}  // namespace
}  // namespace deepspeed::config
