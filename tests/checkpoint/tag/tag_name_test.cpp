#include "deepspeed/checkpoint/tag/tag_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/tag/layout.h"

#include "tests/support/error_of.h"

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

}  // namespace
}  // namespace deepspeed::checkpoint
