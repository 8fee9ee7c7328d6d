#include "deepspeed/base/json_file.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"

namespace deepspeed {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string error_of(const std::string& text) {
  return testing::error_of<ConfigError>([&] { parse_json(text, "x.json"); });
}

TEST(JsonFile, AllowsCommentsAndTrailingCommas) {
  const char* text = R"(# first
// second
{ /* third
      line */ "a": [1, 2, /* none */ ], "b": {"c": "// no # comment /* , ] ",}, // end
  "d": "\"// \\",
} # done)";
  EXPECT_EQ(parse_json(text, "x"),
            Json::parse(R"({"a":[1,2],"b":{"c":"// no # comment /* , ] "},"d":"\"// \\"})"));
}

TEST(JsonFile, RefusesCommasThatFollowNoValue) {
  for (const char* text : {"[,]", "{,}", "[1,,]", "[,1]", "{\"a\":,}", ",", "1,", "{\"a\":1,,\"b\":2}"}) {
    EXPECT_THAT(error_of(text), HasSubstr("x.json line 1 column ")) << text;
  }
}

TEST(JsonFile, NamesLineAndColumnOfAFault) {
  EXPECT_THAT(error_of("{\n  \"a\": 1\n  \"b\": 2\n}"), HasSubstr("x.json line 3 column 5: "));
  EXPECT_THAT(error_of("{ /* a\n b */ \"a\" 1}"), HasSubstr("line 2 column 11: "));
  EXPECT_THAT(error_of("{}\n /* open"), HasSubstr("line 2 column 2: the comment has no end"));
  EXPECT_THAT(error_of(""), HasSubstr("line 1 column 1: "));
  EXPECT_THAT(error_of("{\"a\": nan}"), HasSubstr("line 1 column "));
  EXPECT_THAT(error_of("{\"a\": \"\xff\"}"), HasSubstr("line 1 column 8"));
}

TEST(JsonFile, NamesAKeyThatIsGivenTwice) {
  EXPECT_THAT(error_of("{\"a\": {\"b\": 1,\n \"c\": {}, \"b\": 2}}"),
              HasSubstr("line 2 column 13: the key a.b is given twice"));
  EXPECT_EQ(error_of("{\"a\": {\"b\": 1}, \"b\": [{\"a\": 1}, {\"a\": 2}]}"), "no error");
}

TEST(JsonFile, NamesTheKeyOfANumberThatIsTooGreat) {
  EXPECT_THAT(error_of("{\"a\": {\"b\": 1e400}}"), HasSubstr("a.b: got 1e400"));
  EXPECT_THAT(error_of("{\"a\": {\"b\": -1e400}}"), HasSubstr("a.b: got -1e400"));
}

TEST(JsonFile, SaysWhatToWriteForANumberThatOnlyPythonWrites) {
  const char* way_out = "which JSON does not have, expected a number, or null where the key takes it";
  EXPECT_THAT(error_of("{\"a\":\n {\"b\": Infinity}}"), HasSubstr("line 2 column 8: a.b: got Infinity, "));
  for (const char* text : {"[Infinity]", "[-Infinity]", "[NaN]"})
    EXPECT_THAT(error_of(text), HasSubstr(way_out));
  EXPECT_THAT(error_of("[Inf]"), Not(HasSubstr(way_out)));
}

TEST(JsonFile, ShowsNumbersThatNoTextHoldsByTheirNames) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(json_excerpt(infinity), "Infinity");
  EXPECT_EQ(json_excerpt(-infinity), "-Infinity");
  EXPECT_EQ(json_excerpt(std::nan("")), "NaN");
  EXPECT_EQ(json_excerpt(0.5), "0.5");
}

TEST(JsonFile, BoundsDepthAndSize) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += open;
    EXPECT_THAT(error_of(text), HasSubstr("nested too deep"));
  }
  EXPECT_EQ(error_of(std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']')), "no error");
  EXPECT_THAT(error_of(std::string(kMaxJsonDepth + 1, '[') + std::string(kMaxJsonDepth + 1, ']')),
              HasSubstr("too deep"));
  EXPECT_THAT(error_of("[" + std::string(kMaxJsonBytes, ' ') + "]"), HasSubstr("bytes"));
}

TEST(JsonFile, NamesTheFileThatCannotBeRead) {
  EXPECT_ERROR(IoError, read_json_file("/no/such/file.json"), "cannot open /no/such/file.json",
               "expected a readable JSON file");
  EXPECT_ERROR(IoError, read_json_file("/"), "/ is a folder, expected a JSON file");
}

TEST(PositionIn, CountsLinesAndColumnsFromOne) {
  EXPECT_EQ(position_in("ab\ncd", 0).line, 1u);
  EXPECT_EQ(position_in("ab\ncd", 4).line, 2u);
  EXPECT_EQ(position_in("ab\ncd", 4).column, 2u);
  EXPECT_EQ(position_in("ab\ncd", 99).column, 3u);
}

}  // namespace
}  // namespace deepspeed
