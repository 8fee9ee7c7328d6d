#include "deepspeed/config/source.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "deepspeed/base/message.h"

#include "tests/config/load.h"

namespace deepspeed::config {
namespace {

using testing::HasSubstr;

class SourceFile : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / message("config_source_", ::getpid(), ".json");
    std::ofstream(path_) << "{\n  \"train_batch_size\": 4, // samples\n}\n";
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::filesystem::path path_;
};

TEST_F(SourceFile, ReadsAPathAndTextAndAnObjectAlike) {
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

TEST(Source, RefusesWhatIsNoObject) {
  EXPECT_THAT(load_error("[1]"), HasSubstr("got [1], expected a JSON object"));
  EXPECT_THAT(load_error(Json(7)), HasSubstr("got 7, expected a JSON object"));
  EXPECT_THAT(load_error(""), HasSubstr("expected the path of an existing file"));
  EXPECT_THAT(load_error("  "), HasSubstr("expected the path of an existing file"));
  EXPECT_THAT(load_error("ds_config.jsn"), HasSubstr("ds_config.jsn"));
  EXPECT_THAT(load_error(std::string(100'000, '[')), HasSubstr("nested too deep"));
}

TEST(Source, BoundsTheDepthOfAnObject) {
  Json deep = 1;
  for (int i = 0; i < 100; ++i) deep = Json{{"a", std::move(deep)}};
  EXPECT_THAT(load_error(Json{{"optimizer", {{"params", deep}}}}), HasSubstr("nested too deep"));
}

}  // namespace
}  // namespace deepspeed::config
