// Checks which files of a tag belong together.
#include "deepspeed/checkpoint/sources/tag_archives.h"

#include <filesystem>
#include <fstream>

#include <ATen/ops/arange.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deepspeed/base/error.h"
#include "deepspeed/base/log.h"
#include "deepspeed/checkpoint/archive/torch_archive.h"
#include "deepspeed/checkpoint/sources/shard_places.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void write(const fs::path& file, const std::string& mark, const Value& value = Dict()) {
  fs::create_directories(file.parent_path());
  ArchiveContent content = make_archive_content(value);
  content.mark = mark;
  write_archive_content(file, content);
}

std::string marked(const std::string& save, const std::string& file) { return to_text({save, file, 3, 2}); }

template <class Work>
std::string lines_of(const Work& work) {
  std::string lines;
  const auto before = log::set_sink([&](log::Level, const std::string& line) { lines += line + "\n"; });
  work();
  log::set_sink(before);
  return lines;
}

TEST(TagArchives, AreOfOneSave) {
  const testing::TemporaryFolder folder;
  const fs::path tag = folder / "tag";
  write(tag / "a.pt", marked("one", "a.pt"));
  write(tag / "b.pt", marked("one", "b.pt"));
  write(tag / "deep/c.pt", marked("one", "deep/c.pt"));
  write(tag / "other.pt", marked("two", "other.pt"));
  const TagArchives archives(tag);
  for (const char* file : {"a.pt", "b.pt", "deep/c.pt", "a.pt"}) archives.open(tag / file);
  EXPECT_EQ(archives.num_ranks(), 2);
  EXPECT_THAT(archives.identity(), HasSubstr("one"));
  EXPECT_ERROR(CheckpointError, archives.open(tag / "other.pt"),
               "other.pt\" is of another save than \"a.pt\"", "step 3 of 2 ranks", "load another tag");
}

// At stage 0, a reader of only the weights opens one file.
TEST(TagArchives, AreOfOneSaveAlsoWhereNobodyOpensThem) {
  const testing::TemporaryFolder folder;
  const char *model = "mp_rank_00_model_states.pt", *run = "rng_states_rank_0_mp_rank_00.pt";
  write(folder / "tag" / model, marked("one", model));
  write(folder / "tag" / run, marked("two", run));
  EXPECT_ERROR(CheckpointError, TagArchives(folder / "tag"),
               "rng_states_rank_0_mp_rank_00.pt\" is of another save than", model);
  EXPECT_NO_THROW(TagArchives(folder / "tag", {.looks_around = false}));
}

TEST(TagArchives, HaveTheNamesUnderWhichTheyWereSaved) {
  const testing::TemporaryFolder folder;
  write(folder / "tag/b.pt", marked("one", "a.pt"));
  write(folder / "tag/torn.pt", "{\"save\": 1");
  EXPECT_ERROR(CheckpointError, TagArchives(folder / "tag").open(folder / "tag/b.pt"),
               "b.pt\" was saved as 'a.pt'", "two files changed places");
  EXPECT_ERROR(CheckpointError, TagArchives(folder / "tag").open(folder / "tag/torn.pt"), "torn.pt",
               "the mark of its save is altered");
}

TEST(TagArchives, SayWhatIsNotCheckedWithoutTheManifestOfTheirSave) {
  const testing::TemporaryFolder folder;
  write(folder / "tag/a.pt", marked("one", "a.pt"));
  write(folder / "tag/foreign.pt", "");
  const auto open = [&](const TagArchives::Options& options) {
    return lines_of([&] {
      const TagArchives archives(folder / "tag", options);
      archives.open(folder / "tag/a.pt");
      archives.open(folder / "tag/foreign.pt");
    });
  };
  EXPECT_THAT(open({}), AllOf(HasSubstr("manifest.json\" is missing"), HasSubstr("is not"),
                              HasSubstr("foreign.pt\" has no mark of a save")));
  EXPECT_EQ(open({.looks_around = false}), "");
  EXPECT_EQ(lines_of([&] { TagArchives(folder / "tag").open(folder / "tag/foreign.pt"); }), "")
      << "DeepSpeed's have neither";
}

// DeepSpeed's files have no mark.
TEST(TagArchives, AgreeInTheStepsAndRanksThatTheySay) {
  const testing::TemporaryFolder folder;
  const auto model = [&](const char* name, int64_t steps, int64_t ranks) {
    write(folder / "tag" / name, "",
          Dict{{"module", None{}}, {"global_steps", steps}, {"dp_world_size", ranks}});
  };
  const auto optimizer = [&](const char* name, const char* key, const Value& steps) {
    const Dict state{{"state", Dict{{0, Dict{{"step", steps}}}}}, {"param_groups", List()}};
    write(folder / "tag" / name, "", Dict{{"optimizer_state_dict", Dict{{key, state}}}});
  };
  model("a.pt", 3, 2);
  model("b.pt", 4, 2);
  model("c.pt", 3, 4);
  optimizer("0.pt", "base_optimizer_state", 3);
  optimizer("1.pt", "base_optimizer_state", at::arange(2, 3, at::kFloat).squeeze());
  optimizer("2.pt", "optimizer_state_dict", 5);
  const TagArchives archives(folder / "tag");
  for (const char* file : {"a.pt", "0.pt"}) archives.open(folder / "tag" / file);
  EXPECT_EQ(archives.identity(), "step 3");
  const auto error = [&](const char* file) {
    return testing::error_of<CheckpointError>([&] { archives.open(folder / "tag" / file); });
  };
  EXPECT_THAT(error("b.pt"), HasSubstr("b.pt\" says 4 of 'global_steps', \"a.pt\" 3"));
  EXPECT_THAT(error("c.pt"), HasSubstr("c.pt\" says 4 of 'dp_world_size', \"a.pt\" 2"));
  EXPECT_THAT(error("1.pt"), HasSubstr("1.pt\" says 2 of 'steps of the optimizer', \"0.pt\" 3"));
  EXPECT_THAT(error("2.pt"), HasSubstr("2.pt\" says 5 of 'steps of the optimizer', \"0.pt\" 3"));
}

TEST(TagArchives, CompareRecordsWithTheirOwnChecksums) {
  const testing::TemporaryFolder folder;
  const fs::path file = folder / "tag/a.pt";
  constexpr int64_t kNumel = 100'000;
  write(file, "", at::arange(kNumel, at::kFloat));
  const auto byte = int64_t(fs::file_size(file)) - 20'000;  // in the tensor, near its end
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(byte);
  stream.put('x');
  stream.close();
  const at::Tensor part = at::arange(1000, at::kFloat);
  const auto read = [&](const TagArchives& archives, int64_t begin) {
    const auto archive = archives.open(file);
    archive->read(archive->value().as_tensor(), {begin, begin + 1000}, part);
    archives.check_rest();
  };
  for (const int64_t begin : {0, 1000, 50'000}) {
    EXPECT_ERROR(CheckpointError, read(TagArchives(folder / "tag"), begin), "a.pt",
                 "do not match their checksum")
        << begin;
  }
  EXPECT_EQ(testing::error_of<Error>([&] { read(TagArchives(folder / "tag", {.trusts = true}), 0); }),
            "no error");
}

TEST(PartsOfRanks, SayWhereFilesChangedPlaces) {
  const NamedShapes shapes = {{"a", {4}}, {"b", {5}}};
  std::vector<ZeroOptimizerStates> ranks(2);
  for (int rank : {0, 1}) {
    PartitionStates& group = ranks[size_t(rank)].groups.emplace_back();
    group.padding = rank;
    group.fp32 = at::arange(5 - rank, at::kFloat);
    group.fragments = fragments_in(shapes, {5 * rank, 5 * rank + 5});
  }
  const auto check = [&] {
    return testing::error_of<CheckpointError>(
        [&] { require_own_parts(shapes, 0, ranks, [](size_t rank) { return message("file", rank); }); });
  };
  EXPECT_EQ(check(), "no error");
  ranks[1].groups[0].fragments = {{"b", {5, 0}}};  // as round_robin_gradients makes it
  EXPECT_EQ(check(), "no error");
  ranks[1].groups[0].fragments = ranks[0].groups[0].fragments;
  EXPECT_THAT(check(), AllOf(HasSubstr("file1"), HasSubstr("the part of rank 0")));
}

}  // namespace
}  // namespace deepspeed::checkpoint
