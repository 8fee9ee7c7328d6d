#include "deepspeed/config/table/source.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "deepspeed/base/message.h"

#include "tests/config/load.h"
#include "tests/support/error_of.h"

namespace deepspeed::config {
namespace {

using ::testing::HasSubstr;

class SourceFile : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / message("config_source_", ::getpid(), ".json");
    std::ofstream(path_) << "{\n  \"train_batch_size\": 4, // samples\n}\n";
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::filesystem::path path_;
};

TEST_F(SourceFile, ReadsAPathATextAndAnObject) {
  const Json expected = {{"train_batch_size", 4}};
  EXPECT_EQ(ConfigSource(path_).read(), expected);
  EXPECT_EQ(ConfigSource(path_.string()).read(), expected);
  EXPECT_EQ(ConfigSource(path_.c_str()).read(), expected);
  EXPECT_EQ(ConfigSource("{\"train_batch_size\": 4}").read(), expected);
  EXPECT_EQ(ConfigSource(" \n# c {\n// d\n/* e */ {\"train_batch_size\": 4,}").read(), expected);
  EXPECT_EQ(ConfigSource("\xEF\xBB\xBF{\"train_batch_size\": 4}").read(), expected);
  EXPECT_EQ(ConfigSource(expected).read(), expected);
  EXPECT_EQ(load_config(path_, 2).train_micro_batch_size_per_gpu, 2);
  EXPECT_EQ(load_config(expected, 2).train_micro_batch_size_per_gpu, 2);
}

TEST_F(SourceFile, NamesTheFileInErrors) {
  std::ofstream(path_) << "{\n  \"train_batch_size\" 4\n}\n";
  EXPECT_THAT(load_error(path_), HasSubstr(path_.string() + " line 2 column "));
  std::filesystem::remove(path_);
  EXPECT_THAT(load_error(path_), HasSubstr(path_.string()));
}

TEST(Source, ReadsBase64) {
  // {"train_batch_size": 8, "log_level": "off"} with a comment, whose text needs both special characters.
  const char* const standard = "eyJ0cmFpbl9iYXRjaF9zaXplIjogOCwgImxvZ19sZXZlbCI6ICJvZmYifSAjID8/Pz8+Pj4+";
  const char* const url_safe = "eyJ0cmFpbl9iYXRjaF9zaXplIjogOCwgImxvZ19sZXZlbCI6ICJvZmYifSAjID8_Pz8-Pj4-";
  for (const char* text : {standard, url_safe}) {
    EXPECT_EQ(ConfigSource(text).read(), Json::parse(R"({"train_batch_size": 8, "log_level": "off"})"));
  }
  EXPECT_EQ(load_config("eyJ0cmFpbl9iYXRjaF9zaXplIjogOH0=", 1).train_batch_size, 8);
  EXPECT_EQ(load_config("eyJ0cmFpbl9iYXRjaF9zaXplIjogOH0", 1).train_batch_size, 8);
  EXPECT_THAT(load_error("eyJzZWVkIjogMSwgInNlZWQiOiAyfQ=="), HasSubstr("the key seed is given twice"));
  EXPECT_THAT(load_error("eyJzZWVkIg=="), HasSubstr("config text in base64 line 1 column"));
  EXPECT_THAT(load_error("aGVsbG8="), HasSubstr("or the base64 of such a text"));
  EXPECT_THAT(load_error("eyJ0cmFpbl9iYXRjaF9zaXplIjogO*0="), HasSubstr("or the base64 of such a text"));
}

TEST_F(SourceFile, TakesAFileBeforeBase64) {
  const auto file = std::filesystem::current_path() / "eyJhIjogMX0=";
  std::ofstream(file) << R"({"train_batch_size": 2})";
  EXPECT_EQ(load_config("eyJhIjogMX0=", 1).train_batch_size, 2);
  std::filesystem::remove(file);
}

TEST_F(SourceFile, IsNamedIfItHoldsNoObject) {
  std::ofstream(path_) << "[1]";
  EXPECT_THAT(load_error(path_.string()), HasSubstr(path_.string() + ": got [1], expected a JSON object"));
}

TEST(Source, RefusesWhatIsNoObject) {
  EXPECT_THAT(load_error("[1]"), HasSubstr("got [1], expected a JSON object"));
  EXPECT_THAT(load_error(Json(7)), HasSubstr("got 7, expected a JSON object"));
  EXPECT_THAT(load_error(""), HasSubstr("expected the path of an existing file"));
  EXPECT_THAT(load_error("  "), HasSubstr("expected the path of an existing file"));
  EXPECT_THAT(load_error("ds_config.jsn"), HasSubstr("ds_config.jsn"));
  EXPECT_THAT(load_error(std::string(100'000, '[')), HasSubstr("nested too deep"));
}

TEST(Source, SaysThatAFolderIsNone) {
  const std::string folder = std::filesystem::temp_directory_path().string();
  EXPECT_ERROR(IoError, load_config(folder, 1), folder + " is a folder, expected a JSON file");
}

TEST(Source, BoundsTheDepthOfAnObject) {
  Json deep = 1;
  for (int i = 0; i < 100; ++i) deep = Json{{"a", std::move(deep)}};
  EXPECT_THAT(load_error(Json{{"optimizer", {{"params", deep}}}}), HasSubstr("nested too deep"));
}

}  // namespace
}  // namespace deepspeed::config
