// Configs with values that belong nowhere in particular train, or are refused with an error of the library's
// own: no other exception, no crash. The seed is fixed.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/config/config.h"
#include "deepspeed/config/table/field.h"
#include "deepspeed/config/table/named_type.h"

#include "tests/engine/make_engine.h"

namespace deepspeed {
namespace {

void collect_paths(const config::Field& section, const std::string& path, std::vector<std::string>& paths) {
  for (const config::Field& field : section.children) {
    const std::string where = path.empty() ? field.key : path + "." + field.key;
    if (field.kind == config::Kind::kSection) {
      collect_paths(field, where, paths);
    } else {
      paths.push_back(where);
    }
  }
}

class OddConfigs : public ::testing::Test {
 protected:
  size_t below(size_t limit) { return random_() % limit; }
  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[below(values.size())];
  }
  const Json& some_value() {
    static const std::vector<Json> values = {true,
                                             false,
                                             nullptr,
                                             0,
                                             1,
                                             2,
                                             3,
                                             7,
                                             -1,
                                             0.5,
                                             0.9,
                                             1e-3,
                                             1e-8,
                                             1e8,
                                             1e30,
                                             1e308,
                                             5e-324,
                                             "auto",
                                             "",
                                             "fp32",
                                             "fp16",
                                             "bf16",
                                             "mean",
                                             "sum",
                                             "1",
                                             "0.1",
                                             Json::array(),
                                             Json::array({0.9, 0.99}),
                                             Json::array({0.5}),
                                             Json::array({1.0, 1.0}),
                                             Json::array({-1, "x"}),
                                             Json::object(),
                                             std::numeric_limits<int64_t>::max()};
    return one_of(values);
  }
  /// A type of the list with some of its arguments, and now and then one of another.
  Json some_type(const std::vector<config::NamedType>& types) {
    const config::NamedType& type = one_of(types);
    Json params = Json::object();
    for (size_t i = below(4); i > 0; --i) {
      const auto& from = below(8) == 0 ? one_of(types) : type;
      if (!from.params.empty()) params[one_of(from.params).key] = some_value();
    }
    return {{"type", type.name}, {"params", params}};
  }

  std::mt19937 random_{11};
};

/// Two steps; whether the config trained. Fails the test for what is no error of the library.
bool trains(const Json& config) {
  try {
    const auto engine = testing::make_engine(config);
    if (!engine->optimizer()) return false;
    const auto micro = engine->config().train_micro_batch_size_per_gpu;
    for (int64_t step = 0; step < 2 * std::min<int64_t>(engine->config().gradient_accumulation_steps, 3);
         ++step) {
      const auto [inputs, targets] = testing::odd_batch(4 * step, 4);
      const auto type = engine->module().parameters().front().scalar_type();
      engine->backward(engine->forward(inputs.to(type), targets));
      engine->step();
    }
    return micro > 0;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("] "), std::string::npos) << error.what() << config;
  } catch (const std::exception& error) {
    ADD_FAILURE() << config << "\n" << error.what();
  }
  return false;
}

TEST_F(OddConfigs, TrainOrAreRefusedByTheLibrary) {
  const log::Level before = log::level();
  log::set_level(log::Level::kOff);
  std::vector<std::string> paths;
  collect_paths(config::all_options(), "", paths);
  int trained = 0;
  constexpr int kRuns = 700;
  for (int run = 0; run < kRuns; ++run) {
    Json config = testing::basic();
    if (below(2) == 0) config["zero_optimization"] = {{"stage", below(3)}};
    if (below(3) == 0) config["optimizer"] = some_type(config::optimizer_types());
    if (below(3) == 0) config["scheduler"] = some_type(config::scheduler_types());
    if (below(3) == 0) config[below(2) == 0 ? "fp16" : "bf16"] = {{"enabled", true}};
    if (below(2) == 0) config["zero_allow_untested_optimizer"] = true;
    for (size_t i = below(3); i > 0; --i) {
      std::string path = "/" + one_of(paths);
      for (char& c : path) c = c == '.' ? '/' : c;
      try {
        config[Json::json_pointer(path)] = some_value();
      } catch (const Json::exception&) {
        // What is on the way is no object here.
      }
    }
    trained += trains(config) ? 1 : 0;
  }
  log::set_level(before);
  EXPECT_GT(trained, 100);
  EXPECT_LT(trained, kRuns - 100);
}

}  // namespace
}  // namespace deepspeed
