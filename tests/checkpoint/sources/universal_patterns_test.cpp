#include "deepspeed/checkpoint/sources/universal_patterns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/content/json_value.h"

#include "tests/support/error_of.h"

namespace deepspeed::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string marks_of(UniversalPatterns& patterns, const std::string& parameter) {
  return json_of_value(patterns.marks_of(parameter).marks).dump();
}

TEST(UniversalPatterns, SayAlongWhichDimensionAParameterIsCut) {
  UniversalPatterns patterns(Dict{{"tp_replicated_parameter_patterns", List{"norm"}},
                                  {"parameter_to_average_patterns", List{"scale"}},
                                  {"parameter_with_2_sub_params_cat_dim_0", List{"gate_up"}},
                                  {"parameter_with_row_parallelism_patterns", List{".*\\.down\\."}},
                                  {"vocabulary_parameter_patterns", List{"embed", "head"}},
                                  {"original_vocab_size", 5}});
  EXPECT_EQ(marks_of(patterns, "norm.weight"), "{}");
  EXPECT_EQ(marks_of(patterns, "scale"), "{}");
  EXPECT_EQ(marks_of(patterns, "gate_up.weight"), R"({"cat_dim":0,"param_n_sub_params":2})");
  EXPECT_EQ(marks_of(patterns, "h.0.down.weight"), R"({"cat_dim":1})");
  EXPECT_EQ(marks_of(patterns, "h.0.up.weight"), R"({"cat_dim":0})");
  EXPECT_EQ(marks_of(patterns, "embed.weight"), R"({"cat_dim":0,"vocab_tensor":true})");
  EXPECT_EQ(patterns.marks_of("embed.weight").rows, 5);
  EXPECT_EQ(patterns.marks_of("norm.weight").rows, std::nullopt);
  EXPECT_THAT(patterns.unused(), ElementsAre("head"));
}

TEST(UniversalPatterns, FitANameAtItsStart) {
  UniversalPatterns patterns(Dict{{"parameter_with_row_parallelism_patterns", List{"down"}}});
  EXPECT_EQ(marks_of(patterns, "h.0.down.weight"), R"({"cat_dim":0})");
  EXPECT_THAT(patterns.unused(), ElementsAre("down"));
}

TEST(UniversalPatterns, AreNoneWithoutANoteOfTheTraining) {
  UniversalPatterns patterns(None{});
  EXPECT_EQ(marks_of(patterns, "w"), R"({"cat_dim":0})");
  EXPECT_THAT(patterns.unused(), IsEmpty());
}

TEST(UniversalPatterns, RefuseWhatCannotBeReadOrMeansTwoThings) {
  UniversalPatterns broken(Dict{{"tp_replicated_parameter_patterns", List{"h[0"}}});
  EXPECT_ERROR(CheckpointError, broken.marks_of("h0"), "the pattern 'h[0' cannot be read");
  UniversalPatterns twice(Dict{{"tp_replicated_parameter_patterns", List{"norm", ".*weight"}}});
  EXPECT_ERROR(CheckpointError, twice.marks_of("norm.weight"),
               "the patterns 'norm' and '.*weight' both fit 'norm.weight'");
}

TEST(UniversalPatterns, RefuseParametersMadeOfSeveral) {
  EXPECT_NO_THROW(UniversalPatterns(Dict{{"parameter_with_sub_params", List{}}}));
  EXPECT_ERROR(NotSupportedError, UniversalPatterns(Dict{{"parameter_with_sub_params", List{Dict{}}}}),
               "'parameter_with_sub_params' is not supported yet");
  EXPECT_ERROR(NotSupportedError,
               UniversalPatterns(Dict{{"autotp_unsupported_parameter_patterns", Dict{{"w", 1}}}}),
               "'autotp_unsupported_parameter_patterns' is not supported yet");
}

}  // namespace
}  // namespace deepspeed::checkpoint
