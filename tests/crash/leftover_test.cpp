// What an interrupted saving leaves behind: it is found again where it is the only copy, it goes where it is
// not, and it is never taken for a checkpoint.
#include <fstream>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/convert/zero_to_fp32.h"
#include "deepspeed/checkpoint/tag/tag_folder.h"

#include "tests/crash/saved_run.h"
#include "tests/support/error_of.h"
#include "tests/support/run_ranks.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Leftover, IsLoadedIfItStandsBetweenTwoRenames) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    train_step(*engine);
    engine->save_checkpoint(folder.path(), {.tag = "a"});
    const std::string saved = content_of(*engine);
    // As where a file system cannot exchange two folders: the older one has lost its name, the newer one has
    // not got it.
    on_rank_0(world, [&] { fs::rename(folder / "a", folder / ".a.old"); });
    train_step(*engine);
    EXPECT_FALSE(engine->load_checkpoint(folder.path()).path.empty());
    EXPECT_EQ(content_of(*engine), saved);
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("a", "latest"));
  });
}

TEST(Leftover, IsRemovedIfTheNewerTagExists) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    train_step(*engine);
    engine->save_checkpoint(folder.path(), {.tag = "a"});
    fs::copy(folder / "a", folder / ".a.old");
    engine->load_checkpoint(folder.path());
    EXPECT_EQ(names_in(world, folder.path()).count(".a.old"), 0u);
    // A program that saves before it has loaded.
    folder.write("a/notes.txt", "the user's");
    fs::rename(folder / "a", folder / ".a.old");
    engine->save_checkpoint(folder.path(), {.tag = "a"});
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre("a", "latest"));
    EXPECT_TRUE(fs::exists(folder / "a/notes.txt"));
  });
}

TEST(Leftover, IsRemovedByTheNextSave) {
  const TemporaryFolder folder;
  folder.write(".a.saving/mp_rank_00_model_states.pt", "half");
  folder.write(".b.saving/mp_rank_00_model_states.pt.17.tmp", "half");
  folder.write(".c.removed/manifest.json", "half");
  folder.write("latest.17.tmp", "step");
  folder.write("zero_to_fp32.py.17.tmp", "#!");
  folder.write("own/file.saving", "the user's");
  folder.write("latest.before.tmp", "the user's");
  folder.write(".notes.saving", "the user's, no folder");
  folder.write("live/.d.saving/file", "another process fills it");
  fs::rename(folder / "live/.d.saving", folder / ".d.saving");
  fs::remove(folder / "live");
  const checkpoint::StagingLock other(checkpoint::Folder(folder / ".d.saving"));
  ASSERT_TRUE(other.is_held());
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    engine->save_checkpoint(folder.path(), {.tag = "a"});
    EXPECT_THAT(names_in(world, folder.path()),
                ElementsAre(".d.saving", ".notes.saving", "a", "latest", "latest.before.tmp", "own"));
    EXPECT_EQ(names_in(world, folder / "a").count("manifest.json"), 1u);
    EXPECT_EQ(names_in(world, folder / "a").size(), 6u);  // model, two of each rank, manifest
  });
  EXPECT_TRUE(fs::exists(folder / "own/file.saving"));
}

TEST(Leftover, IsNoFolderOfTheUserThatHasItsName) {
  const TemporaryFolder folder;
  folder.write(".a.old/notes.txt", "the user's");
  run_ranks(1, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    for (int save = 0; save < 2; ++save) engine->save_checkpoint(folder.path(), {.tag = "a"});
    engine->load_checkpoint(folder.path());
    EXPECT_THAT(names_in(world, folder.path()), ElementsAre(".a.old", "a", "latest"));
  });
  EXPECT_TRUE(fs::exists(folder / ".a.old/notes.txt"));
}

TEST(Leftover, IsNotPublishedIfAnotherMachineSaves) {
  const TemporaryFolder folder;
  const auto lock = checkpoint::begin_tag(folder / "nested", "a");
  folder.write("nested/.a.saving/listed", "x");
  folder.write("nested/.a.saving/zero_pp_rank_7_mp_rank_00_optim_states.pt", "of a larger world");
  checkpoint::Manifest manifest;
  manifest.files["listed"] = {1, {}};
  checkpoint::remove_unlisted(checkpoint::open_staging(folder / "nested", "a"), manifest);
  checkpoint::publish_tag(folder / "nested", "a");
  EXPECT_THAT(names_in(folder / "nested"), ElementsAre("a"));
  EXPECT_THAT(names_in(folder / "nested/a"), ElementsAre("listed"));
}

TEST(Leftover, LocksEndWithTheirOwner) {
  const TemporaryFolder folder;
  const checkpoint::Folder locked(folder.path()), again(folder.path());
  checkpoint::StagingLock first(locked);
  EXPECT_TRUE(first.is_held());
  EXPECT_FALSE(checkpoint::StagingLock(again).is_held());
  first = checkpoint::StagingLock();
  EXPECT_TRUE(checkpoint::StagingLock(again).is_held());
}

TEST(MissingLatest, LoadsNothingUntilATagIsChosen) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    train_step(*engine);
    engine->save_checkpoint(folder.path(), {.tag = "a"});
    const std::string saved = content_of(*engine);
    on_rank_0(world, [&] { fs::remove(folder / "latest"); });
    train_step(*engine);
    EXPECT_TRUE(engine->load_checkpoint(folder.path()).path.empty());
    EXPECT_NE(content_of(*engine), saved);
    engine->load_checkpoint(folder.path(), {.tag = "a"});
    EXPECT_EQ(content_of(*engine), saved);
  });
}

TEST(TornTag, IsNamedWithTheNewestWholeOne) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world);
    for (const char* tag : {"a", "b", "c"}) {
      train_step(*engine);
      engine->save_checkpoint(folder.path(), {.tag = tag});
    }
    const fs::path file = folder / "c/zero_pp_rank_1_mp_rank_00_optim_states.pt";
    on_rank_0(world, [&] { fs::resize_file(file, fs::file_size(file) - 1); });
    const std::string error = error_of<CheckpointError>([&] { engine->load_checkpoint(folder.path()); });
    EXPECT_THAT(error, HasSubstr(file.filename().string()));
    EXPECT_THAT(error, HasSubstr("'b'"));
    engine->load_checkpoint(folder.path(), {.tag = "b"});
    EXPECT_EQ(engine->global_steps(), 2);
  });
}

TEST(TornTag, GivesItsWeightsWithoutOptimizerFiles) {
  for (const int stage : {0, 1, 2, 3}) {
    const TemporaryFolder folder;
    run_ranks(2, [&](comm::World& world) {
      const auto engine = make_saved_run(world, Json::object(), stage);
      train_step(*engine);
      engine->save_checkpoint(folder.path(), {.tag = "a"});
      on_rank_0(world, [&] {
        for (const std::string& name : names_in(folder / "a"))
          if (name.ends_with("_optim_states.pt")) fs::remove(folder / "a" / name);
      });
      const at::Tensor weight = engine->module().parameters().front();
      const at::Tensor saved = stage < 3 ? weight.detach().clone() : at::Tensor();
      for (const bool module_only : {false, true}) {
        train_step(*engine);
        const LoadOptions options{.load_optimizer_states = module_only, .load_module_only = module_only};
        if (stage == 3) {
          EXPECT_ERROR(CheckpointError, engine->load_checkpoint(folder.path(), options), "is missing",
                       "whose weights are in these files");
          continue;
        }
        EXPECT_FALSE(engine->load_checkpoint(folder.path(), options).path.empty());
        EXPECT_TRUE(weight.equal(saved)) << "stage " << stage;
      }
      if (stage == 0) return;
      EXPECT_THAT(error_of<CheckpointError>([&] { engine->load_checkpoint(folder.path()); }),
                  HasSubstr("_optim_states.pt"));
    });
  }
}

/// Writes a file of a tag anew, without its mark and without a manifest.
void alter(const fs::path& file, const std::function<void(checkpoint::Dict& content)>& change) {
  checkpoint::Dict content = checkpoint::read_torch_archive(file).as_dict();
  change(content);
  checkpoint::write_torch_archive(file, content);
  fs::remove(file.parent_path() / "manifest.json");
}

/// Gives the value of a key another one.
void rename_key(checkpoint::Dict& content, const std::string& from, const std::string& to) {
  for (auto& [key, value] : content.items()) {
    const auto* name = key.get_if<std::string>();
    if (name != nullptr && *name == from) key = to;
  }
}

TEST(TornTag, IsNotLoadedAsANewRunWithoutItsCounters) {
  for (const char* counter : {"global_steps", "skipped_steps"}) {
    const TemporaryFolder folder;
    run_ranks(1, [&](comm::World& world) {
      const auto engine = make_saved_run(world);
      train_step(*engine);
      engine->save_checkpoint(folder.path(), {.tag = "a"});
      train_step(*engine);
      alter(folder / "a/mp_rank_00_model_states.pt",
            [&](checkpoint::Dict& content) { rename_key(content, counter, "renamed"); });
      EXPECT_ERROR(CheckpointError, engine->load_checkpoint(folder.path()),
                   std::string("lacks '") + counter + "'", "load_module_only");
      EXPECT_EQ(engine->global_steps(), 2);
      EXPECT_FALSE(engine->load_checkpoint(folder.path(), {.load_module_only = true}).path.empty());
    });
  }
}

TEST(TornTag, IsNotConvertedIfItsFilesHaveOtherShapes) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    const auto engine = make_saved_run(world, Json::object(), /*stage=*/3);
    train_step(*engine);
    engine->save_checkpoint(folder.path(), {.tag = "a"});
  });
  alter(folder / "a/zero_pp_rank_0_mp_rank_00_model_states.pt", [](checkpoint::Dict& content) {
    checkpoint::List groups;
    for (const checkpoint::Value& group : content.at("param_shapes").as_sequence()) {
      checkpoint::Dict shapes = group.as_dict();
      for (auto& [name, shape] : shapes.items())
        if (name.as_string() == "wide") shape = checkpoint::Size{{300, 100}};
      groups.emplace_back(shapes);
    }
    content.set("param_shapes", groups);
  });
  EXPECT_ERROR(CheckpointError,
               checkpoint::convert_zero_checkpoint_to_fp32_state_dict(folder.path(), folder / "out", {}),
               "zero_pp_rank_1_mp_rank_00_model_states.pt", "other parameter names or shapes");
}

TEST(WholeTag, IsNotReplacedByAnotherIfTheModelOrOptimizerDiffers) {
  for (const int stage : {0, 1, 3}) {
    const TemporaryFolder folder;
    run_ranks(2, [&](comm::World& world) {
      const auto engine = make_saved_run(world, Json::object(), stage);
      for (const char* tag : {"a", "b"}) {
        train_step(*engine);
        engine->save_checkpoint(folder.path(), {.tag = tag});
      }
      const auto smaller = make_engine(basic({{"zero_optimization", {{"stage", stage}}}}), world);
      const auto lion = make_saved_run(world, {{"optimizer", {{"type", "Lion"}}}}, stage);
      const auto expect_no_way_out = [&](auto& other) {
        EXPECT_THAT(error_of<Error>([&] { other->load_checkpoint(folder.path()); }),
                    AllOf(Not(HasSubstr("no error")), Not(HasSubstr("other tag"))))
            << stage;
      };
      expect_no_way_out(smaller);
      expect_no_way_out(lion);
    });
  }
}

}  // namespace
}  // namespace deepspeed::testing
