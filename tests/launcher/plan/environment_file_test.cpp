// The files of variables that a user keeps for launches.
#include "deepspeed/launcher/plan/environment_file.h"

#include <fstream>

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/base/error.h"

#include "tests/launcher/node/launch_fixture.h"
#include "tests/support/error_of.h"

namespace deepspeed::launcher {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
namespace fs = std::filesystem;

/// With a home folder and a folder to work in.
class EnvironmentFileTest : public LaunchTest {
 protected:
  void SetUp() override {
    LaunchTest::SetUp();
    home_ = folder_ / "home";
    work_ = folder_ / "work";
    fs::create_directories(home_);
    fs::create_directories(work_);
    variables_["HOME"] = home_;
    working_folder_ = work_;
  }
  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  EnvironmentFiles read() const { return read_environment_files(variables_, work_); }

  fs::path home_, work_;
};

TEST_F(EnvironmentFileTest, AreReadFromBothFoldersAndTheLatterWins) {
  EXPECT_THAT(read().read, IsEmpty());
  write(home_ / ".deepspeed_env", "A=1\nB=home\n");
  write(work_ / ".deepspeed_env", "B=work\nC=x=y z\n");
  const EnvironmentFiles files = read();
  EXPECT_THAT(files.read, ElementsAre(home_ / ".deepspeed_env", work_ / ".deepspeed_env"));
  EXPECT_THAT(files.variables, ElementsAre(Pair("A", "1"), Pair("B", "work"), Pair("C", "x=y z")));
}

TEST_F(EnvironmentFileTest, TakeValuesLiterally) {
  write(work_ / ".deepspeed_env", "# a comment\n\n  EMPTY=\r\nQUOTED=\"a b\"\n\tHASH=a#b  \nLAST=$HOME");
  EXPECT_THAT(read().variables, ElementsAre(Pair("EMPTY", ""), Pair("HASH", "a#b"), Pair("LAST", "$HOME"),
                                            Pair("QUOTED", "\"a b\"")));
}

TEST_F(EnvironmentFileTest, RefuseAFileOfAnotherUserInAFolderThatEveryoneMayWrite) {
  if (::geteuid() != 0) GTEST_SKIP() << "root alone may give a file away";
  constexpr uid_t kStranger = 54321;
  const fs::path path = work_ / ".deepspeed_env";
  write(path, "LD_PRELOAD=/tmp/stranger.so\n");
  ASSERT_EQ(::chown(path.c_str(), kStranger, kStranger), 0);
  EXPECT_THAT(read().variables, Not(IsEmpty())) << "a folder of colleagues";
  ASSERT_EQ(::chmod(work_.c_str(), 01777), 0);
  EXPECT_ERROR(UsageError, read(), path.string() + " was put there by another user", "DS_ENV_FILE");
  // Nor behind a link of theirs.
  write(work_ / "mine", "A=1\n");
  fs::remove(path);
  fs::create_symlink(work_ / "mine", path);
  EXPECT_THAT(read().variables, ElementsAre(Pair("A", "1")));
  ASSERT_EQ(::lchown(path.c_str(), kStranger, kStranger), 0);
  EXPECT_ERROR(UsageError, read(), "was put there by another user");
}

TEST_F(EnvironmentFileTest, RefuseWhatNoVariableCanHave) {
  write(work_ / ".deepspeed_env", std::string("GOOD=1\nBAD=a\0b\n", 15));
  EXPECT_ERROR(UsageError, read(), ".deepspeed_env line 2: BAD has a byte 0");
  write(work_ / ".deepspeed_env", std::string(17 << 20, 'A'));
  EXPECT_ERROR(IoError, read(), ".deepspeed_env");
}

TEST_F(EnvironmentFileTest, UseTheNameThatAVariableGives) {
  write(work_ / ".deepspeed_env", "A=1\n");
  write(home_ / "other", "A=2\n");
  variables_["DS_ENV_FILE"] = "other";
  EXPECT_THAT(read().variables, ElementsAre(Pair("A", "2")));
  write(folder_ / "whole_path", "A=3\n");
  variables_["DS_ENV_FILE"] = folder_ / "whole_path";
  EXPECT_THAT(read().read, ElementsAre(folder_ / "whole_path"));
}

TEST_F(EnvironmentFileTest, NameTheLineThatIsNoVariable) {
  for (const char* line : {"no equals sign", "=value", "1A=b", "A B=c", "export A=1"}) {
    write(work_ / ".deepspeed_env", std::string("A=1\n") + line + "\n");
    EXPECT_THAT(error_of<UsageError>([&] { read(); }), HasSubstr(".deepspeed_env line 2: got '")) << line;
  }
}

TEST_F(EnvironmentFileTest, ReachEveryRank) {
  write(home_ / ".deepspeed_env", "FROM_HOME=1 2\nOMP_NUM_THREADS=3\n");
  write(work_ / ".deepspeed_env", "FROM_WORK=x\nRANK=77\n");
  variables_["FROM_WORK"] = "of the shell";
  start_script(2, "echo $FROM_HOME $FROM_WORK $OMP_NUM_THREADS $RANK > $DIR/got$LOCAL_RANK");
  EXPECT_EQ(wait(), 0) << err();
  EXPECT_EQ(file("got0"), "1 2 x 3 0\n");
  EXPECT_EQ(file("got1"), "1 2 x 3 1\n");
  EXPECT_THAT(err(),
              HasSubstr("variables of " + (home_ / ".deepspeed_env").string() + " are set for all ranks"));
}

TEST_F(EnvironmentFileTest, StopALaunchTheyDoNotFit) {
  write(work_ / ".deepspeed_env", "nonsense\n");
  start_script(1, "true");
  EXPECT_EQ(wait(), 2);
  EXPECT_THAT(err(), HasSubstr(".deepspeed_env line 1: got 'nonsense', expected KEY=VALUE"));
}

TEST_F(EnvironmentFileTest, WarnIfTheirNameLeadsNowhere) {
  variables_["DS_ENV_FILE"] = "no_such_file";
  start_script(1, "true");
  EXPECT_EQ(wait(), 0);
  EXPECT_THAT(err(), HasSubstr("DS_ENV_FILE=no_such_file names no file"));
  variables_.erase("DS_ENV_FILE");
  start_script(1, "true");
  EXPECT_EQ(wait(), 0);
  EXPECT_THAT(err(), Not(HasSubstr("DS_ENV_FILE")));
}

}  // namespace
}  // namespace deepspeed::launcher
