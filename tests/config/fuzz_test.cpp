// Altered configs load or throw a ConfigError that names what is wrong: no other exception, no crash, no
// hang. The seeds are fixed.
#include <algorithm>
#include <ctime>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "deepspeed/config/help.h"

#include "tests/config/load.h"
#include "tests/config/reference_keys.h"

namespace deepspeed::config {
namespace {

constexpr const char* kSample = R"({
  "train_batch_size": 32, // samples
  "steps_per_print": 10, "gradient_clipping": 0.5, "seed": 1,
  "fp16": {"enabled": true, "loss_scale": 0, "hysteresis": 2,},
  "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "betas": [0.9, 0.999]}},
  "zero_optimization": {"stage": 2, "cpu_offload": false, "reduce_bucket_size": 5e8, "overlap_comm": null},
  "checkpoint": {"tag_validation": "Fail"}, /* end */
})";

class Fuzz : public ::testing::Test {
 protected:
  size_t below(size_t limit) { return random_() % limit; }

  template <class T>
  const T& one_of(const std::vector<T>& values) {
    return values[below(values.size())];
  }

  std::mt19937 random_{20240607};
};

// --- Text ------------------------------------------------------------------------------------------------

std::string mutate(std::string text, std::mt19937& random) {
  static const std::string kPieces[] = {"{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "\"",
                                        "null",
                                        "true",
                                        "1e400",
                                        "-1",
                                        "\"auto\"",
                                        "//",
                                        "/*",
                                        "#",
                                        "\\",
                                        "\\u0000",
                                        "\xff",
                                        "99999999999999999999",
                                        "\"stage\":"};
  const int edits = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < edits && !text.empty(); ++i) {
    const size_t at = random() % text.size();
    switch (random() % 4) {
      case 0:
        text.erase(at, 1 + random() % 8);
        break;
      case 1:
        text.insert(at, kPieces[random() % std::size(kPieces)]);
        break;
      case 2:
        text[at] = static_cast<char>(random() % 256);
        break;
      default:
        text.insert(at, text.substr(random() % text.size(), random() % 40));
    }
  }
  return text;
}

/// Whether the text loads; fails the test for what is no error of the library, and for one that names neither
/// a place nor a key.
bool loads(const std::string& text) {
  try {
    load_config("{" + text.substr(text.empty() ? 0 : 1), 2);
    return true;
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    const bool names_place = what.starts_with("[config] config text line ");
    EXPECT_TRUE(names_place || what.starts_with("[config] ")) << what;
    EXPECT_NE(what.find(": "), std::string::npos) << what;
  }
  return false;
}

TEST_F(Fuzz, LoadsOrRefusesAlteredText) {
  int loaded = 0;
  constexpr int kRuns = 4000;
  for (int run = 0; run < kRuns; ++run) loaded += loads(mutate(kSample, random_)) ? 1 : 0;
  EXPECT_GT(loaded, 0);
  EXPECT_LT(loaded, kRuns);
}

TEST_F(Fuzz, RefusesEveryPrefix) {
  const std::string sample = kSample;
  for (size_t length = 1; length < sample.size(); ++length)
    EXPECT_FALSE(loads(sample.substr(0, length))) << length;
  EXPECT_TRUE(loads(sample));
}

// --- Values ----------------------------------------------------------------------------------------------

Json nested(size_t depth, bool lists) {
  Json value = 1;
  for (size_t i = 0; i < depth; ++i)
    value = lists ? Json::array({std::move(value)}) : Json{{"a", std::move(value)}};
  return value;
}

/// Values that belong nowhere in particular.
std::vector<Json> odd_values() {
  return {nullptr,
          true,
          -1,
          0,
          3,
          0.5,
          -0.0,
          5e8,
          1e308,
          5e-324,
          std::numeric_limits<double>::infinity(),
          std::numeric_limits<double>::quiet_NaN(),
          std::numeric_limits<int64_t>::max(),
          std::numeric_limits<int64_t>::min(),
          std::numeric_limits<uint64_t>::max(),
          "",
          "auto",
          "16",
          "1e3",
          "nan",
          std::string(300, 'x'),
          std::string("a\0b\xff", 4),
          Json::array(),
          Json::object(),
          Json{{"enabled", "auto"}},
          Json{{"enabled", true}},
          Json::array({1, "two", nullptr}),
          nested(20, true),
          nested(100, true),
          nested(100, false)};
}

std::string misspelled(std::string key, std::mt19937& random) {
  const size_t at = random() % key.size();
  switch (random() % 4) {
    case 0:
      return key.erase(at, 1) + "_";
    case 1:
      return key.insert(at, 1, static_cast<char>('a' + random() % 26)) + "x";
    case 2:
      return key + std::string(1 + random() % 200, '\n');
    default:
      key[at] = static_cast<char>(random() % 256);
      return key + "~";
  }
}

/// Sets the value as far as what stands in the way is an object or nothing.
void put(Json& config, const std::string& path, const Json& value) {
  Json* at = &config;
  size_t begin = 0;
  for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
    at = &(*at)[path.substr(begin, dot - begin)];
    if (!at->is_object()) *at = Json::object();
    begin = dot + 1;
  }
  (*at)[path.substr(begin)] = value;
}

/// What stands between "[config] " and the colon; empty where the error has another form.
std::string named_path(const std::string& error) {
  constexpr const char* kPrefix = "[config] ";
  const size_t colon = error.find(": ");
  if (!error.starts_with(kPrefix) || colon == std::string::npos) return "";
  return error.substr(9, colon - 9);
}

const std::set<std::string>& documented_paths() {
  static const std::set<std::string> paths = [] {
    std::set<std::string> found;
    for (const std::string& line : option_list()) found.insert(line.substr(0, line.find(": ")));
    return found;
  }();
  return paths;
}

/// Loads the config as an object and as text; the two must agree. The error must name a documented key, or a
/// key that the config has.
std::string checked_error(const Json& config) {
  const std::clock_t begin = std::clock();  // of this process: it may have to wait for others
  const std::string error = load_error(config, 2);
  EXPECT_LT(std::clock() - begin, 5 * CLOCKS_PER_SEC) << config;
  if (error == "no error") return error;
  const std::string path = named_path(error);
  const bool documented = documented_paths().count(path) != 0;
  // An unknown key is named as it was given, beside the section that it stands in; arguments of the optimizer
  // and the schedule are documented with their classes.
  const bool given = error.find("unknown key") != std::string::npos ||
                     error.find("nested too deep") != std::string::npos ||
                     path.starts_with("optimizer.params.") || path.starts_with("scheduler.params.");
  EXPECT_TRUE(documented || (given && !path.empty())) << error;
  return error;
}

TEST_F(Fuzz, LoadsOrRefusesMutatedConfigsByTheKey) {
  const std::vector<Json> odd = odd_values();
  const Json sample = ConfigSource(kSample).read();
  int loaded = 0;
  constexpr int kRuns = 3000;
  for (int run = 0; run < kRuns; ++run) {
    Json config = below(4) == 0 ? Json{{"train_batch_size", 8}} : sample;
    const size_t mutations = 1 + below(4);
    for (size_t i = 0; i < mutations; ++i) {
      const ReferenceKey& key = one_of(reference().keys);
      switch (below(5)) {
        case 0:
          put(config, key.path(), one_of(odd));
          break;
        case 1:  // a documented value: several of them contradict each other
          put(config, key.path(), one_of(key.accepted()));
          break;
        case 2:
          put(config, key.path(), key.refused().empty() ? Json("x") : one_of(key.refused()));
          break;
        case 3:
          put(config, key.section.path.empty() ? "x" : key.section.path, one_of(odd));
          break;
        default:
          put(config,
              key.section.path.empty() ? misspelled(key.key, random_)
                                       : key.section.path + "." + misspelled(key.key, random_),
              1);
      }
    }
    loaded += checked_error(config) == "no error" ? 1 : 0;
  }
  EXPECT_GT(loaded, 50);
  EXPECT_LT(loaded, kRuns / 2);
}

TEST_F(Fuzz, NamesTheOnePathOfAWrongValue) {
  for (const ReferenceKey& key : reference().keys) {
    for (const Json& value : key.refused()) {
      Json config = ConfigSource(kSample).read();
      for (const ReferenceKey& other : reference().keys) {
        if (other.required && other.section.path == key.section.path) put(config, other.path(), false);
      }
      config["zero_optimization"].erase(
          "cpu_offload");  // it contradicts offload_optimizer, whatever that holds
      put(config, key.path(), value);
      const std::string error = checked_error(config);
      // A section that does not exist yet is named in the place of what is wrong in it.
      if (error.find("not supported yet") != std::string::npos) {
        EXPECT_TRUE(named_path(error).starts_with(key.section.path)) << error;
      } else {
        EXPECT_EQ(named_path(error), key.path()) << value;
      }
    }
  }
}

TEST_F(Fuzz, RefusesHugeNumbersThatDoNotFit) {
  for (const ReferenceKey& key : reference().keys) {
    if (key.type != "int" && key.type != "float") continue;
    for (const char* number : {"9223372036854775807", "-9223372036854775808", "18446744073709551615", "1e18",
                               "1e308", "-1e308", "99999999999999999999999999", "1e999"}) {
      const std::string path = key.path();
      std::string text = "{\"train_batch_size\": 8, ", ends = "}";
      size_t begin = 0;
      for (size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', begin)) {
        text += "\"" + path.substr(begin, dot - begin) + "\": {";
        if (path.starts_with("progressive_layer_drop")) text += "\"enabled\": false, ";
        ends += "}";
        begin = dot + 1;
      }
      text += "\"" + path.substr(begin) + "\": " + number + ends;
      const std::string error = load_error(text);
      EXPECT_TRUE(error == "no error" || error.find(key.key) != std::string::npos ||
                  error.find("not supported yet") != std::string::npos)
          << text << "\n"
          << error;
    }
  }
}

TEST_F(Fuzz, LoadsAConfigThatPrintedItself) {
  int printed = 0;
  for (int run = 0; run < 2000; ++run) {
    Json config = {{"train_batch_size", 8}};
    for (size_t i = 0; i < 3; ++i) {
      const ReferenceKey& key = one_of(reference().keys);
      put(config, key.path(), one_of(key.accepted()));
    }
    if (load_error(config, 1) != "no error") continue;
    const Json first = to_json(load_config(config, 1));
    ASSERT_EQ(load_error(first, 1), "no error") << config;
    EXPECT_EQ(to_json(load_config(first, 1)), first) << config;
    ++printed;
  }
  EXPECT_GT(printed, 200);
}

}  // namespace
}  // namespace deepspeed::config
