#include "deepspeed/yaml/yaml_file.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/json_file.h"
#include "deepspeed/base/message.h"

#include "tests/support/error_of.h"

namespace deepspeed {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Json value_of(const std::string& text) { return parse_yaml(text, "x.yaml").value; }
std::string error_of(const std::string& text) {
  return testing::error_of<ConfigError>([&] { parse_yaml(text, "x.yaml"); });
}

TEST(YamlFile, GivesPlainScalarsThePyYamlTypes) {
  // The values are those of PyYAML 6.0.
  const std::vector<std::pair<const char*, Json>> rows = {{"no", false},
                                                          {"NO", false},
                                                          {"nO", "nO"},
                                                          {"yes", true},
                                                          {"on", true},
                                                          {"off", false},
                                                          {"y", "y"},
                                                          {"~", nullptr},
                                                          {"", nullptr},
                                                          {"Null", nullptr},
                                                          {"none", "none"},
                                                          {"1", 1},
                                                          {"-1", -1},
                                                          {"+1", 1},
                                                          {"010", 8},
                                                          {"0o10", "0o10"},
                                                          {"0x1F", 31},
                                                          {"0b101", 5},
                                                          {"1_000", 1000},
                                                          {"1:30", 90},
                                                          {"-1:30", -90},
                                                          {"1:30.5", 90.5},
                                                          {"1e-3", "1e-3"},
                                                          {"1.0e-3", 0.001},
                                                          {"1.0e5", "1.0e5"},
                                                          {"1.e+3", 1000.0},
                                                          {".5", 0.5},
                                                          {"0.", 0.0},
                                                          {"08", "08"},
                                                          {"'1'", "1"},
                                                          {"\"no\"", "no"},
                                                          {"!!str 5", "5"},
                                                          {"!!float 5", 5.0},
                                                          {"!!int '5'", 5},
                                                          {"2001-01-01", "2001-01-01"},
                                                          {"-.5", "-.5"},
                                                          {"/nvme", "/nvme"},
                                                          {"a:b", "a:b"},
                                                          {"1.2.3", "1.2.3"}};
  for (const auto& [text, expected] : rows) {
    const Json value = value_of(std::string("k: ") + text + "\n")["k"];
    EXPECT_EQ(value, expected) << text;
    EXPECT_STREQ(value.type_name(), expected.type_name()) << text;
  }
  EXPECT_EQ(value_of("k: .inf")["k"], std::numeric_limits<double>::infinity());
  EXPECT_EQ(value_of("k: -.inf")["k"], -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(value_of("k: .nan")["k"].get<double>()));
}

TEST(YamlFile, ResolvesAnchorsAndMergeKeys) {
  EXPECT_EQ(value_of("a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\n")["b"], (Json{{"q", 3}, {"p", 1}}));
  EXPECT_EQ(value_of("a: &x {p: 1}\nb: &y {p: 2, r: 4}\nc:\n  <<: [*x, *y]\n")["c"],
            (Json{{"p", 1}, {"r", 4}}));
}

TEST(YamlFile, KnowsTheLineOfEachValue) {
  const YamlDocument document = parse_yaml("a: 1\nb:\n  c:\n    - x\n    - y\n", "x.yaml");
  EXPECT_EQ(document.place_of("a"), "x.yaml line 1");
  EXPECT_EQ(document.place_of("b.c[1]"), "x.yaml line 5");
  EXPECT_EQ(document.place_of("b.d"), "x.yaml line 3");  // that of b's map
  EXPECT_EQ(document.place_of("nothing"), "x.yaml");
}

TEST(YamlFile, NamesFileLineAndKeyOfAFault) {
  EXPECT_THAT(error_of("a: 1\nb: 2\na: 3\n"), HasSubstr("x.yaml line 3: a: the key is given twice"));
  EXPECT_THAT(error_of("a: !!python/object/apply:os.system ['true']\n"),
              HasSubstr("x.yaml line 1: a: the tag"));
  EXPECT_THAT(error_of("a: 1\nb: c: d\n"), HasSubstr("x.yaml line 2 column "));
  EXPECT_THAT(error_of("a: *nowhere\n"), HasSubstr("x.yaml line 1 column "));
  EXPECT_THAT(error_of("---\na: 1\n---\nb: 2\n"), HasSubstr("got 2 documents"));
  EXPECT_THAT(error_of("? [a]\n: b\n"), HasSubstr("a key is no text"));
  EXPECT_THAT(error_of("a: !!int x\n"), HasSubstr("does not fit"));
}

TEST(YamlFile, RefusesWhatWouldUnfoldOrNestWithoutEnd) {
  EXPECT_THAT(error_of("a: &a [*a]\n"), HasSubstr("nested too deeply"));
  EXPECT_THAT(error_of(std::string(2000, '[')), HasSubstr("x.yaml line"));
  EXPECT_THAT(error_of(std::string(kMaxJsonBytes + 1, ' ')), HasSubstr("smaller text"));
  std::string bomb = "a0: &a0 [x]\n";
  for (int i = 1; i < 30; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    bomb += message("a", i, ": &a", i, " [", before, ",", before, "]\n");
  }
  EXPECT_THAT(error_of(bomb), HasSubstr("unfold to too many values"));
  EXPECT_EQ(value_of("k: " + std::string(100000, '1'))["k"], std::string(100000, '1'));
}

TEST(YamlFile, WritesWhatItReads) {
  const Json value = {{"no", "no"},
                      {"dynamo_backend", "NO"},
                      {"number", "1.0"},
                      {"count", 1},
                      {"rate", 1e-5},
                      {"whole", 2e8},
                      {"large", std::numeric_limits<double>::infinity()},
                      {"flag", true},
                      {"nothing", nullptr},
                      {"list", {1, "yes", {{"a", "b: c"}}}},
                      {"empty", Json::object()},
                      {"none", Json::array()},
                      {"date", "2001-01-01"},
                      {"lines", "a\nb\n"},
                      {"quote", "it's \"x\" # y"},
                      {"= ", "="}};
  const std::string text = to_yaml(value);
  EXPECT_EQ(value_of(text), value) << text;
  EXPECT_THAT(text, HasSubstr("dynamo_backend: 'NO'\n"));
  EXPECT_THAT(text, HasSubstr("date: '2001-01-01'\n"));
  EXPECT_THAT(text, HasSubstr("rate: 1.0e-05\n"));
}

}  // namespace
}  // namespace deepspeed
