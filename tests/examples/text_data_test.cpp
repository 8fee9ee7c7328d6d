#include "text_data.h"

#include <torch/types.h>

#include <gtest/gtest.h>
#include <unistd.h>

#include "deepspeed/base/error.h"

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace examples {
namespace {
namespace fs = std::filesystem;
using deepspeed::testing::error_of;
using deepspeed::testing::TemporaryFolder;

TEST(Vocabulary, NumbersTheBytesOfTheTextInOrderAndComesBack) {
  const std::string text =
      "ba\xff"
      "ab\n";
  const auto vocabulary = Vocabulary::of(text);
  EXPECT_EQ(vocabulary.bytes(), (std::vector<uint8_t>{'\n', 'a', 'b', 0xff}));
  const auto tokens = vocabulary.encode(text);
  EXPECT_TRUE(tokens.equal(torch::tensor({2, 1, 3, 1, 2, 0}, at::kLong)));
  EXPECT_EQ(vocabulary.decode(tokens), text);
}

TEST(Vocabulary, HasATokenForEachByteValue) {
  const auto vocabulary = Vocabulary::of_all_bytes();
  EXPECT_EQ(vocabulary.size(), 256);
  EXPECT_TRUE(vocabulary.encode("a\xff").equal(torch::tensor({97, 255}, at::kLong)));
}

TEST(Vocabulary, RejectsWhatItDoesNotHave) {
  const auto vocabulary = Vocabulary::of("ab");
  EXPECT_NE(error_of<deepspeed::UsageError>([&] { vocabulary.encode("abc"); }).find("byte 99"),
            std::string::npos);
  EXPECT_ERROR(deepspeed::UsageError, vocabulary.decode(torch::tensor({2}, at::kLong)),
               "token 2 is outside 0 to 1");
  EXPECT_ERROR(deepspeed::UsageError, Vocabulary({1, 1}), "byte 1 stands twice");
  EXPECT_ERROR(deepspeed::UsageError, Vocabulary({}), "the vocabulary is empty");
}

TEST(TextWindows, HoldEveryWindowThatHasATarget) {
  TextWindows windows(torch::arange(10, at::kLong), 3, 1);
  ASSERT_EQ(windows.size(), 7u);
  const auto last = windows.get(6);
  EXPECT_TRUE(last.tokens.equal(torch::tensor({6, 7, 8}, at::kLong)));
  EXPECT_TRUE(last.targets.equal(torch::tensor({7, 8, 9}, at::kLong)));
}

TEST(TextWindows, SideBySideReachEachTargetOnce) {
  TextWindows windows(torch::arange(11, at::kLong), 3, 3);  // starts 0, 3, 6; 9 would lack targets
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_TRUE(windows.get(2).targets.equal(torch::tensor({7, 8, 9}, at::kLong)));
  EXPECT_EQ(TextWindows(torch::arange(10, at::kLong), 3, 3).size(), 3u);
  EXPECT_EQ(TextWindows(torch::arange(9, at::kLong), 3, 3).size(), 2u);
  EXPECT_ERROR(deepspeed::UsageError, TextWindows(torch::arange(3, at::kLong), 3, 1),
               "the text has 3 characters, expected at least 4");
}

TEST(TextData, HoldsOutTheLastTenth) {
  std::string text(1000, 'a');
  std::fill(text.begin() + 900, text.end(), 'b');
  auto data = make_text_data(text, 8);
  EXPECT_EQ(data.vocabulary.size(), 2);
  EXPECT_EQ(data.train.size(), 892u);
  EXPECT_EQ(data.held_out.size(), 12u);
  EXPECT_TRUE(data.train.get(891).targets.eq(0).all().item<bool>());
  EXPECT_TRUE(data.held_out.get(0).tokens.eq(1).all().item<bool>());
}

TEST(TextData, SaysHowLongATextMustBe) {
  const auto message = error_of<deepspeed::UsageError>([] { make_text_data(std::string(89, 'a'), 8); });
  EXPECT_NE(message.find("89 characters, expected at least 90"), std::string::npos) << message;
  EXPECT_NO_THROW(make_text_data(std::string(90, 'a'), 8));
}

TEST(ReadText, NamesTheFileThatIsMissingOrEmpty) {
  const TemporaryFolder folder;
  const auto missing = folder.path() / "missing.txt";
  EXPECT_EQ(error_of<deepspeed::IoError>([&] { read_text(missing); }),
            "[common.text_data] there is no file " + missing.string());
  const auto empty = folder.write("empty.txt", "");
  EXPECT_NE(error_of<deepspeed::IoError>([&] { read_text(empty); }).find("is empty"), std::string::npos);
  EXPECT_NE(error_of<deepspeed::IoError>([&] { read_text(folder.path()); }).find("is not a file"),
            std::string::npos);
  EXPECT_EQ(read_text(folder.write("text.txt", std::string("a\0b\r\n", 5))), std::string("a\0b\r\n", 5));
}

TEST(DefaultText, ReadsEachFileOnceInTheOrderOfNames) {
  const TemporaryFolder folder;
  EXPECT_ERROR(deepspeed::IoError, read_default_text(folder.path()),
               "there are no texts in " + folder.path().string(), "name a text with --data FILE");
  folder.write("b", "second ");
  folder.write("a", "first ");
  fs::create_symlink("b", folder.path() / "link");
  EXPECT_EQ(read_default_text(folder.path()), "first second ");
}

TEST(Stack, MakesABatchOfExamples) {
  TextWindows windows(torch::arange(10, at::kLong), 3, 1);
  const auto batch = stack({windows.get(0), windows.get(4)});
  EXPECT_TRUE(batch.tokens.equal(torch::tensor({{0, 1, 2}, {4, 5, 6}}, at::kLong)));
  EXPECT_TRUE(batch.targets.equal(torch::tensor({{1, 2, 3}, {5, 6, 7}}, at::kLong)));
}

}  // namespace
}  // namespace examples
