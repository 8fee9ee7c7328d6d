#include "deepspeed/checkpoint/tag/tag_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/manifest.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;

TEST(TagName, IsOnePlainName) {
  for (const std::string tag : {"best", "global_step7", "step 7", "a.b", "latest2", "été", "latest.old.tmp",
                                "zero_to_fp32", "x.tmp", "-"})
    EXPECT_NO_THROW(require_tag_name(tag)) << tag;
}

TEST(TagName, LeadsNowhereElseAndIsNoNameOfOurs) {
  const std::pair<std::string, const char*> refused[] = {{"", "is empty"},
                                                         {"a/b", "slash"},
                                                         {"/tmp/run", "slash"},
                                                         {"../run", "slash"},
                                                         {"best/", "slash"},
                                                         {".", "dot"},
                                                         {"..", "dot"},
                                                         {".best.saving", "dot"},
                                                         {"latest", "beside the tags"},
                                                         {"latest_universal", "beside the tags"},
                                                         {"zero_to_fp32.py", "beside the tags"},
                                                         {"latest.17.tmp", "beside the tags"},
                                                         {"best\n", "control character"},
                                                         {std::string("be\0st", 5), "control character"},
                                                         {"best ", "ends with a space"},
                                                         {std::string(241, 'x'), "241 bytes"}};
  for (const auto& [tag, reason] : refused)
    EXPECT_THAT(error_of<UsageError>([&, tag = tag] { require_tag_name(tag); }),
                AllOf(HasSubstr(reason), HasSubstr("expected a plain name")))
        << tag;
  EXPECT_THAT(error_of<UsageError>([] { require_tag_name("a\x01"); }), HasSubstr("\"a\\u0001\""));
}

TEST(Layout, KnowsTheFilesOfCheckpointsByName) {
  for (const char* name :
       {"mp_rank_00_model_states.pt", "zero_pp_rank_3_mp_rank_00_model_states.pt",
        "zero_pp_rank_12_mp_rank_00_optim_states.pt", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "rng_states_rank_1_mp_rank_00.pt"})
    EXPECT_TRUE(is_checkpoint_file(name)) << name;
  for (const char* name : {"my_model_states.pt", "mp_rank_00_model_states.pt.bak", "tokenizer.json", "zero",
                           "rng_states_rank_1.pt", "manifest.json", "pytorch_model.bin"})
    EXPECT_FALSE(is_checkpoint_file(name)) << name;
}

TEST(Latest, IsTheNameOfAFolder) {
  const testing::TemporaryFolder folder;
  const auto error = [&](const std::string& text) {
    folder.write("latest", text);
    return error_of<CheckpointError>([&] { read_latest(folder.path()); });
  };
  const std::string name = (folder / "latest").string();
  EXPECT_THAT(error(std::string(5000, 'a')),
              AllOf(HasSubstr(name), HasSubstr("5000 characters"), HasSubstr("tag")));
  EXPECT_THAT(error("a\xff"), AllOf(HasSubstr(name), HasSubstr("not UTF-8")));
  EXPECT_EQ(error("run/step5\n"), "no error");
  std::filesystem::remove(folder / "latest");
  ASSERT_EQ(::mkfifo((folder / "latest").c_str(), 0600), 0);
  EXPECT_ERROR(IoError, read_latest(folder.path()), name, "is a FIFO");
  EXPECT_ERROR(UsageError, require_tag_inside("../x"), "'../x' leads out of the folder");
  EXPECT_ERROR(UsageError, require_tag_inside(std::string(5000, 'a')), "5000 bytes");
}

TEST(Manifest, IsNamedByTheErrorIfItCannotBeRead) {
  const testing::TemporaryFolder folder;
  for (const std::string& text :
       {std::string("{\"files\": {\"\xff\": 1}, \"chunk_bytes\": 262144, \"crc32\": \"\"}"),
        std::string("{\"files\": \"\\ud800\"}"), std::string(100'000, '['),
        std::string("{\"files\": ") + std::string(400, '9') + "}", std::string("\xff\xfe{}"),
        std::string()}) {
    folder.write("manifest.json", text);
    EXPECT_ERROR(CheckpointError, read_manifest(folder.path()), (folder / "manifest.json").string(),
                 "is altered or torn");
  }
  std::filesystem::remove(folder / "manifest.json");
  ASSERT_EQ(::mkfifo((folder / "manifest.json").c_str(), 0600), 0);
  EXPECT_ERROR(IoError, read_manifest(folder.path()), "manifest.json is a FIFO");
}

}  // namespace
}  // namespace deepspeed::checkpoint
