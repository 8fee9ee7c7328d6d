#include "deepspeed/checkpoint/tag/tag_content.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "deepspeed/base/error.h"
#include "deepspeed/checkpoint/tag/manifest.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TemporaryFolder;
namespace fs = std::filesystem;

std::string error_of_place(const fs::path& target, bool is_universal = false) {
  return error_of<UsageError>([&] { require_replaceable(target, is_universal); });
}

TEST(TagContent, ReplacesOnlyACheckpointOfItsKind) {
  const TemporaryFolder folder;
  folder.write("notes", "the user's");
  folder.write("logs/important.txt", "the user's");
  folder.write("foreign/manifest.json", R"({"files": {"a": 1}})");
  folder.write("plain/mp_rank_00_model_states.pt", "of DeepSpeed, without a manifest");
  folder.write("other_machine/zero_pp_rank_1_mp_rank_00_optim_states.pt", "");
  folder.write("universal/zero/optimizer_state.pt", "");
  folder.write("universal/mp_rank_00_model_states.pt", "");
  fs::create_directory(folder / "empty");
  fs::create_directory_symlink("plain", folder / "link");
  fs::create_symlink("nowhere", folder / "dangling");

  for (const char* name : {"none", "empty", "plain", "other_machine"})
    EXPECT_EQ(error_of_place(folder / name), "no error") << name;
  for (const char* name : {"none", "empty", "universal"})
    EXPECT_EQ(error_of_place(folder / name, /*is_universal=*/true), "no error") << name;
  EXPECT_THAT(error_of_place(folder / "notes"), AllOf(HasSubstr("notes"), HasSubstr("is a file")));
  EXPECT_THAT(error_of_place(folder / "logs"),
              AllOf(HasSubstr("not a checkpoint"), HasSubstr("'important.txt'"), HasSubstr("another tag")));
  EXPECT_THAT(error_of_place(folder / "foreign"), HasSubstr("not a checkpoint"));
  EXPECT_THAT(error_of_place(folder / "link"), HasSubstr("symbolic link"));
  EXPECT_THAT(error_of_place(folder / "dangling"), HasSubstr("symbolic link"));
  EXPECT_THAT(error_of_place(folder / "universal"), HasSubstr("is a universal checkpoint"));
  EXPECT_THAT(error_of_place(folder / "plain", true), HasSubstr("is not a universal checkpoint"));
  fs::rename(folder / "universal", folder / "moved");
  fs::create_directory_symlink("moved", folder / "universal");
  EXPECT_THAT(error_of_place(folder / "universal", true), HasSubstr("symbolic link"));
}

TEST(TagContent, KeepsOtherFilesUnderBothNames) {
  const TemporaryFolder folder;
  folder.write("old/mp_rank_00_model_states.pt", "ours");
  folder.write("old/zero_pp_rank_7_mp_rank_00_optim_states.pt", "ours, of a larger world");
  folder.write("old/listed.bin", "ours by the manifest");
  Manifest manifest;
  manifest.files["listed.bin"] = {20, {1}};
  write_manifest(Folder(folder / "old"), manifest);
  folder.write("old/tokenizer.json", "{}");
  folder.write("old/zero/notes.txt", "no universal checkpoint, so no folder of ours");
  folder.write("old/sub/deep/a.txt", "a");
  folder.write("old/sub/twice.txt", "old");
  ::chmod((folder / "old/tokenizer.json").c_str(), 0640);
  fs::create_symlink("tokenizer.json", folder / "old/link.json");
  fs::create_symlink("/nowhere", folder / "old/dangling");
  folder.write("new/sub/twice.txt", "new");

  keep_others(Folder(folder / "old"), Folder(folder / "new"));
  EXPECT_TRUE(fs::equivalent(folder / "old/tokenizer.json", folder / "new/tokenizer.json"));
  EXPECT_EQ(fs::status(folder / "new/tokenizer.json").permissions(), fs::perms(0640));
  EXPECT_EQ(fs::file_size(folder / "new/sub/deep/a.txt"), 1u);
  EXPECT_EQ(fs::read_symlink(folder / "new/link.json"), "tokenizer.json");
  EXPECT_EQ(fs::read_symlink(folder / "new/dangling"), "/nowhere");
  EXPECT_TRUE(fs::exists(folder / "new/zero/notes.txt"));
  EXPECT_FALSE(fs::equivalent(folder / "old/sub/twice.txt", folder / "new/sub/twice.txt"));
  size_t at_top = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder / "new")) ++at_top;
  EXPECT_EQ(at_top, 5u);  // nothing of the old checkpoint
  EXPECT_NO_THROW(keep_others(Folder(folder / "old"), Folder(folder / "new")));
}

TEST(TagContent, RefusesAFolderInPlaceOfLatest) {
  const TemporaryFolder folder;
  EXPECT_NO_THROW(require_no_folder(folder / "latest"));
  folder.write("latest/x", "");
  EXPECT_THAT(error_of<UsageError>([&] { require_no_folder(folder / "latest"); }),
              AllOf(HasSubstr("is a folder"), HasSubstr("rename")));
}

TEST(Manifest, SaysWhichTagsTheTrainingWroteInTurn) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& tag, bool in_turn) {
    folder.write(tag + "/listed", "x");
    Manifest manifest;
    manifest.files["listed"] = {1, {7}};
    manifest.in_turn = in_turn;
    write_manifest(Folder(folder / tag), manifest);
    EXPECT_EQ(read_manifest(folder / tag).in_turn, in_turn);
  };
  write("global_step1", true);
  write("global_step2", false);     // named so by the user, or an additional save
  write("global_step_best", true);  // a copy, or a renamed tag
  write("best", true);
  fs::create_directory_symlink("global_step1", folder / "global_step3");
  EXPECT_EQ(find_tags_in_turn(folder.path()), std::vector<std::string>{"global_step1"});
  EXPECT_EQ(find_complete_tags(folder.path()).size(), 5u);
}

}  // namespace
}  // namespace deepspeed::checkpoint
