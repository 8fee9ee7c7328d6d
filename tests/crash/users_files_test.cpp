// A save takes nothing away that is not its own.
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "deepspeed/checkpoint/convert/universal.h"
#include "deepspeed/checkpoint/tag/layout.h"
#include "deepspeed/checkpoint/tag/manifest.h"

#include "tests/crash/saved_run.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Json writer_of(bool decoupled) {
  return decoupled ? Json{{"checkpoint", {{"writer", {{"decoupled", true}}}}}} : Json::object();
}

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(UsersFiles, AreNotReplacedInTheTagsPlace) {
  for (const bool decoupled : {false, true}) {
    const TemporaryFolder folder;
    folder.write("run/logs/important.txt", "the user's");
    folder.write("run/notes", "the user's");
    folder.write("elsewhere/mp_rank_00_model_states.pt", "another's");
    fs::create_directory_symlink("../elsewhere", folder / "run/link");
    run_ranks(2, [&](comm::World& world) {
      const auto engine = make_saved_run(world, writer_of(decoupled));
      train_step(*engine);
      for (const char* tag : {"logs", "notes", "link"}) {
        const std::string error = error_of<Error>([&] {
          engine->save_checkpoint(folder / "run", {.tag = tag});
          engine->wait_for_checkpoint();
        });
        EXPECT_THAT(error, AllOf(HasSubstr(tag), HasSubstr("choose another tag")));
        EXPECT_THAT(names_in(world, folder / "run"), ElementsAre("link", "logs", "notes"));
      }
      engine->save_checkpoint(folder / "run", {.tag = "other"});
      engine->wait_for_checkpoint();
      EXPECT_THAT(names_in(world, folder / "run"), ElementsAre("latest", "link", "logs", "notes", "other"));
    });
    EXPECT_EQ(text_of(folder / "run/logs/important.txt"), "the user's");
    EXPECT_EQ(text_of(folder / "run/notes"), "the user's");
    EXPECT_TRUE(fs::is_symlink(folder / "run/link"));
    EXPECT_TRUE(fs::exists(folder / "elsewhere/mp_rank_00_model_states.pt"));
  }
}

TEST(UsersFiles, AreOutOfReachOfATag) {
  const TemporaryFolder folder;
  folder.write("precious/mp_rank_00_model_states.pt", "another's");
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    const std::string absolute = folder / "precious";
    for (const std::string& tag :
         {std::string("../precious"), absolute, std::string("a/b"), std::string(".."), std::string("latest"),
          std::string("latest_universal"), std::string("zero_to_fp32.py")})
      EXPECT_THAT(error_of<UsageError>([&] { engine->save_checkpoint(folder / "run", {.tag = tag}); }),
                  HasSubstr("expected a plain name"))
          << tag;
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("precious"));  // nothing was made
    engine->save_checkpoint(folder / "run", {.tag = "a"});
    engine->save_checkpoint(folder / "run", {.tag = "b"});
    EXPECT_ERROR(UsageError, engine->save_16bit_model(folder / "run", "latest"),
                 "save_16bit_model(): 'latest' is the name of a file of checkpoints", "choose another");
    EXPECT_EQ(checkpoint::read_latest(folder / "run"), "b");
  });
  EXPECT_EQ(text_of(folder / "precious/mp_rank_00_model_states.pt"), "another's");
}

TEST(UsersFiles, SurviveASaveOfTheTagThatHoldsThem) {
  for (const bool decoupled : {false, true}) {
    const TemporaryFolder folder;
    run_ranks(3, [&](comm::World& world) {
      const auto engine = make_saved_run(world, writer_of(decoupled), /*stage=*/3);
      train_step(*engine);
      engine->save_checkpoint(folder.path(), {.tag = "best"});
      engine->wait_for_checkpoint();
    });
    folder.write("best/tokenizer.json", "{}");
    folder.write("best/words/en.txt", "word");
    folder.write("best/zero_pp_rank_9_mp_rank_00_optim_states.pt", "of a larger world, in no manifest");
    run_ranks(2, [&](comm::World& world) {
      const auto engine = make_saved_run(world, writer_of(decoupled), /*stage=*/1);
      train_step(*engine);
      const std::string saved = content_of(*engine);
      engine->save_checkpoint(folder.path(), {.tag = "best"});
      engine->wait_for_checkpoint();
      EXPECT_THAT(names_in(world, folder / "best"),
                  ElementsAre("manifest.json", "mp_rank_00_model_states.pt",
                              "rng_states_rank_0_mp_rank_00.pt", "rng_states_rank_1_mp_rank_00.pt",
                              "tokenizer.json", "words", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
                              "zero_pp_rank_1_mp_rank_00_optim_states.pt"));
      EXPECT_THAT(names_in(world, folder.path()), ElementsAre("best", "latest"));
      train_step(*engine);
      engine->load_checkpoint(folder.path());
      EXPECT_EQ(content_of(*engine), saved);
    });
    EXPECT_EQ(text_of(folder / "best/tokenizer.json"), "{}");
    EXPECT_EQ(text_of(folder / "best/words/en.txt"), "word");
    EXPECT_EQ(checkpoint::read_manifest(folder / "best").files.count("tokenizer.json"), 0u);
  }
}

TEST(UsersFiles, SurviveInsideAUniversalTag) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    train_step(*engine);
    engine->save_checkpoint(folder.path(), {.tag = "a"});
    checkpoint::convert_to_universal(folder / "a", folder / "universal");
    folder.write("universal/card.md", "the user's");
    folder.write("universal/zero/gone/fp32.pt", "of a parameter that is no more");
    checkpoint::convert_to_universal(folder / "a", folder / "universal");
    EXPECT_EQ(text_of(folder / "universal/card.md"), "the user's");
    EXPECT_FALSE(fs::exists(folder / "universal/zero/gone"));
    // A save takes no universal checkpoint's place, and a conversion no name of ours.
    EXPECT_THAT(error_of<UsageError>([&] { engine->save_checkpoint(folder.path(), {.tag = "universal"}); }),
                HasSubstr("is a universal checkpoint"));
    for (const char* name : {"latest", "latest_universal", "zero_to_fp32.py"}) {
      fs::remove_all(folder / name);
      EXPECT_ERROR(UsageError, checkpoint::convert_to_universal(folder / "a", folder / name),
                   std::string("the tag \"") + name + "\" is the name of a file",
                   "expected a plain name for a folder")
          << name;
      EXPECT_FALSE(fs::exists(folder / name)) << name;
    }
  });
}

TEST(UsersFiles, AreReportedInPlaceOfLatestBeforeAnythingIsWritten) {
  const TemporaryFolder folder;
  folder.write("latest/mine", "the user's");
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    EXPECT_THAT(error_of<Error>([&] { engine->save_checkpoint(folder.path()); }),
                AllOf(HasSubstr("latest"), HasSubstr("is a folder")));
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("latest"));
    EXPECT_THAT(error_of<CheckpointError>([&] { engine->load_checkpoint(folder.path()); }),
                AllOf(HasSubstr("is a folder"), HasSubstr("pass the tag")));
    engine->save_checkpoint(folder.path(), {.tag = "a", .save_latest = false});
    EXPECT_THAT(names_in(world, folder.path()), Contains("a"));
    EXPECT_FALSE(engine->load_checkpoint(folder.path(), {.tag = "a"}).path.empty());
  });
  EXPECT_TRUE(fs::exists(folder / "latest/mine"));
}

// In a folder to which others may write as well a link may stand under each name that a save uses itself.
TEST(UsersFiles, StayUntouchedBehindALinkUnderTheSavesOwnNames) {
  const TemporaryFolder folder;
  folder.write("theirs/thesis.txt", "theirs");
  folder.write("theirs/mp_rank_00_model_states.pt", "theirs");
  const std::string saved_in = folder / "run";
  fs::create_directory(saved_in);
  run_ranks(1, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    train_step(*engine);
    const std::string process = std::to_string(::getpid());
    fs::create_directory_symlink("../theirs", folder / "run/.a.saving");
    EXPECT_THAT(error_of<Error>([&] { engine->save_checkpoint(saved_in, {.tag = "a"}); }),
                AllOf(HasSubstr(".a.saving\" is a symbolic link"), HasSubstr("remove it")));
    fs::remove(folder / "run/.a.saving");
    for (const char* name : {".a.old", ".b.saving", ".c.removed"})
      fs::create_directory_symlink("../theirs", folder / "run" / name);
    for (const std::string& name :
         {std::string("latest"), "latest." + process + ".tmp", "weights.bin." + process + ".tmp"})
      fs::create_symlink("../theirs/thesis.txt", folder / "run" / name);
    for (int save = 0; save < 2; ++save) {
      engine->save_checkpoint(saved_in, {.tag = "a"});
      engine->load_checkpoint(saved_in, {.tag = "a"});
    }
    engine->save_16bit_model(saved_in, "weights.bin");
    EXPECT_FALSE(fs::is_symlink(folder / "run/latest"));
    EXPECT_FALSE(fs::is_symlink(folder / "run/weights.bin"));
    fs::create_directory_symlink("../theirs", folder / "run/.universal.saving");
    EXPECT_ERROR(IoError, checkpoint::convert_to_universal(folder / "run/a", folder / "run/universal"),
                 "is a symbolic link");
  });
  EXPECT_THAT(names_in(folder / "theirs"), ElementsAre("mp_rank_00_model_states.pt", "thesis.txt"));
  EXPECT_EQ(text_of(folder / "theirs/thesis.txt"), "theirs");
}

TEST(UsersFiles, AreNeitherEmptiedNorReplacedIfAnotherUserOwnsThem) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can act as another user of the machine";
  const TemporaryFolder folder;
  constexpr uid_t kOther = 12345;
  const std::vector<std::string> theirs{".a.saving", ".b.saving", ".c.removed", ".d.old", "e"};
  for (const std::string& name : theirs) {
    folder.write(name + "/mp_rank_00_model_states.pt", "theirs");
    ASSERT_EQ(::chown((folder / name).c_str(), kOther, kOther), 0);
  }
  run_ranks(1, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    for (const char* tag : {"a", "e"}) {
      EXPECT_THAT(error_of<Error>([&] { engine->save_checkpoint(folder.path(), {.tag = tag}); }),
                  AllOf(HasSubstr(tag), HasSubstr("belongs to another user")));
    }
    for (int save = 0; save < 2; ++save) engine->save_checkpoint(folder.path(), {.tag = "d"});
    engine->load_checkpoint(folder.path(), {.tag = "d"});
  });
  for (const std::string& name : theirs)
    EXPECT_THAT(names_in(folder / name), ElementsAre("mp_rank_00_model_states.pt")) << name;
}

}  // namespace
}  // namespace deepspeed::testing
