// Every key of DeepSpeed's documentation: that it exists, its default, what it takes and what it refuses, and
// in which words.
#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/json_file.h"
#include "deepspeed/config/help.h"

#include "tests/config/load.h"
#include "tests/config/reference_keys.h"

namespace deepspeed::config {
namespace {

using ::testing::HasSubstr;

/// A config with that key alone, and the switch that its section cannot be without.
Json config_of(const ReferenceKey& key, const Json& value) {
  Json config = config_with(key.path(), value);
  for (const ReferenceKey& other : reference().keys) {
    const bool beside = other.required && other.section.path == key.section.path && other.key != key.key;
    if (beside) config[pointer(other.path())] = false;
  }
  return config;
}

/// Whether the text refuses the key's value for its type or its range, and not for a contradiction or for a
/// feature that does not exist yet.
bool refuses_value(const std::string& error, const ReferenceKey& key, const Json& value) {
  return error.find("[config] " + key.path() + ": got " + json_excerpt(value) + ", expected " +
                    key.words()) != std::string::npos;
}

TEST(Reference, NamesTheKeysOfTheTablesAndNoOthers) {
  std::set<std::string> documented, known;
  for (const ReferenceSection& section : reference().sections) documented.insert(section.path);
  for (const ReferenceKey& key : reference().keys) documented.insert(key.path());
  for (const std::string& line : option_list()) {
    const std::string path = line.substr(0, line.find(": "));
    const bool is_of_one_type =
        path.find('[') != std::string::npos;  // an argument of one optimizer or schedule
    if (!is_of_one_type) known.insert(path);
  }
  documented.erase("");
  EXPECT_EQ(documented, known);
  EXPECT_GT(reference().keys.size(), 400u);
}

TEST(Reference, HasTheDefaultsOfALoadedConfig) {
  const Json loaded = to_json(load_config(R"({"train_batch_size": 8})", 1));
  for (const ReferenceKey& key : reference().keys) {
    if (key.section.absent || !key.default_value) continue;
    ASSERT_TRUE(loaded.contains(pointer(key.path()))) << key.path();
    EXPECT_EQ(loaded[pointer(key.path())].dump(), key.default_value->dump()) << key.path();
  }
}

TEST(Reference, HasTheDefaultsThatTheHelpShows) {
  std::set<std::string> shown;
  for (const std::string& line : option_list()) shown.insert(line);
  for (const ReferenceKey& key : reference().keys) {
    const std::string begin = key.path() + ": ";
    const auto line = std::find_if(shown.begin(), shown.end(),
                                   [&](const std::string& text) { return text.starts_with(begin); });
    ASSERT_NE(line, shown.end()) << begin;
    if (key.required) {
      EXPECT_THAT(*line, HasSubstr("; required"));
    }
    if (key.default_value) {
      EXPECT_THAT(*line, HasSubstr("; default " + key.default_value->dump()));
    }
  }
}

TEST(Reference, TakesEveryDocumentedValue) {
  int values = 0;
  for (const ReferenceKey& key : reference().keys) {
    for (const Json& value : key.accepted()) {
      ++values;
      const std::string error = read_error(config_of(key, value));
      EXPECT_FALSE(refuses_value(error, key, value)) << error;
      EXPECT_THAT(error, ::testing::Not(HasSubstr("unknown key"))) << key.path();
    }
  }
  EXPECT_GT(values, 2000);
}

TEST(Reference, LoadsOrSaysThatAFeatureIsMissing) {
  // Errors that two values together give, though each is documented.
  const auto is_contradiction = [](const std::string& error) {
    return error.find(": got ") != std::string::npos || error.find("inferred as 0") != std::string::npos ||
           error.find(": is missing, but ") != std::string::npos;
  };
  int loaded = 0, missing = 0;
  for (const ReferenceKey& key : reference().keys) {
    for (const Json& value : key.accepted()) {
      const std::string error = load_error(config_of(key, value), 1);
      if (error == "no error") {
        ++loaded;
      } else if (error.find(": not supported") != std::string::npos) {
        ++missing;
      } else {
        EXPECT_TRUE(is_contradiction(error)) << error;
      }
    }
  }
  EXPECT_GT(loaded, 1000);
  EXPECT_GT(missing, 200);
}

TEST(Reference, RefusesOtherValuesInItsWords) {
  int values = 0;
  for (const ReferenceKey& key : reference().keys) {
    for (const Json& value : key.refused()) {
      ++values;
      const std::string error = read_error(config_of(key, value));
      EXPECT_TRUE(refuses_value(error, key, value))
          << key.path() << " = " << value << ", expected " << key.words() << ": " << error;
    }
  }
  EXPECT_GT(values, 2000);
}

TEST(Reference, TakesAutoForTheDefaultIfItIsDocumented) {
  for (const ReferenceKey& key : reference().keys) {
    if (!key.section.auto_is_default || key.section.absent || !key.default_value) continue;
    const Json config = config_of(key, "auto");
    ASSERT_EQ(load_error(config), "no error") << config;
    EXPECT_EQ(to_json(load_config(config, 1))[pointer(key.path())], *key.default_value) << key.path();
  }
}

TEST(Reference, TakesNullForASectionOnlyIfItIsDocumented) {
  for (const ReferenceSection& section : reference().sections) {
    if (section.path.empty()) continue;
    const std::string error = load_error(config_with(section.path, nullptr));
    if (section.nullable) {
      EXPECT_EQ(error, "no error") << section.path;
    } else {
      EXPECT_THAT(error, HasSubstr(section.path + ": got null, expected an object"));
    }
  }
}

TEST(Reference, KeepsUnknownKeysOnlyIfTheyAreDocumented) {
  for (const ReferenceSection& section : reference().sections) {
    const std::string path = section.path.empty() ? "no_such_key" : section.path + ".no_such_key";
    Json config = config_with(path, 1);
    if (section.path == "amp") config["amp"]["enabled"] = false;
    EXPECT_EQ(read_error(config).find("unknown key") == std::string::npos, section.open) << section.path;
  }
}

}  // namespace
}  // namespace deepspeed::config
