// Programs that Python runs, with real processes: which interpreter, with which arguments.
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/launcher/node/launch_fixture.h"

namespace deepspeed::launcher {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class PythonLaunchTest : public LaunchTest {
 protected:
  void SetUp() override {
    LaunchTest::SetUp();
    // Stands for an interpreter: writes down its arguments, one a line.
    interpreter_ = write_script("interpreter", "for a in \"$@\"; do echo \"$a\"; done > $DIR/args$RANK");
    std::ofstream(folder_ / "train.py") << "import os\nprint('rank', os.environ['RANK'])\n";
  }

  std::string interpreter_;
};

TEST_F(PythonLaunchTest, RunsAScriptWithTheInterpreterThatPythonNames) {
  variables_["PYTHON"] = interpreter_;
  const std::string script = folder_ / "train.py";
  start({"--num_procs", "2", script, "--lr", "0.1", "a b"});
  EXPECT_EQ(wait(), 0) << err();
  EXPECT_EQ(file("args0"), "-u\n" + script + "\n--local_rank=0\n--lr\n0.1\na b\n");
  EXPECT_EQ(file("args1"), "-u\n" + script + "\n--local_rank=1\n--lr\n0.1\na b\n");
}

TEST_F(PythonLaunchTest, CountsRanksByGpusIfTheCpuIsTheAccelerator) {
  variables_["PYTHON"] = interpreter_;
  variables_["DS_ACCELERATOR"] = "cpu";
  variables_["CUDA_VISIBLE_DEVICES"] = "0";
  start({"--num_gpus", "2", folder_ / "train.py"});
  EXPECT_EQ(wait(), 0) << err();
  EXPECT_NE(file("args1"), "");
}

TEST_F(PythonLaunchTest, LeavesTheLocalRankOutWhenAsked) {
  variables_["PYTHON"] = interpreter_;
  start({"--num_procs", "1", "--no_local_rank", folder_ / "train.py", "x"});
  EXPECT_EQ(wait(), 0) << err();
  EXPECT_EQ(file("args0"), "-u\n" + (folder_ / "train.py").string() + "\nx\n");
}

TEST_F(PythonLaunchTest, RunsAModule) {
  variables_["PYTHON"] = interpreter_;
  start({"--num_procs", "1", "--module", "package.train", "x"});
  EXPECT_EQ(wait(), 0) << err();
  EXPECT_EQ(file("args0"), "-u\n-m\npackage.train\n--local_rank=0\nx\n");
}

TEST_F(PythonLaunchTest, RunsAnExecutableScriptItselfWithoutPython) {
  variables_["PYTHON"] = interpreter_;
  const std::string script = write_script("own.py", "echo \"$@\" > $DIR/own$RANK");
  start({"--num_procs", "1", "--no_python", script, "x"});
  EXPECT_EQ(wait(), 0) << err();
  EXPECT_EQ(file("own0"), "x\n");
  EXPECT_EQ(file("args0"), "");
}

TEST_F(PythonLaunchTest, FindsPythonInThePath) {
  fs::create_directory(folder_ / "bin");
  fs::copy_file(interpreter_, folder_ / "bin/python");
  variables_["PATH"] = (folder_ / "bin").string();
  start({"--num_procs", "1", folder_ / "train.py"});
  EXPECT_EQ(wait(), 0) << err();
  EXPECT_THAT(file("args0"), HasSubstr("train.py"));
  std::ofstream(folder_ / "bin/python3") << "#!/bin/sh\necho three > $DIR/three\n";
  fs::permissions(folder_ / "bin/python3", fs::perms::owner_exec, fs::perm_options::add);
  start({"--num_procs", "1", folder_ / "train.py"});
  EXPECT_EQ(wait(), 0) << err();
  EXPECT_EQ(file("three"), "three\n");
}

TEST_F(PythonLaunchTest, SaysWhatIsMissing) {
  start({"--num_procs", "1", folder_ / "no_such_script.py"});
  EXPECT_EQ(wait(), 127);
  EXPECT_THAT(err(), HasSubstr("no_such_script.py' not found"));
  fs::create_directory(folder_ / "folder.py");
  start({"--num_procs", "1", folder_ / "folder.py"});
  EXPECT_EQ(wait(), 126);
  EXPECT_THAT(err(), HasSubstr("folder.py' is a folder"));
  variables_["PATH"] = folder_ / "nothing";
  start({"--num_procs", "1", folder_ / "train.py"});
  EXPECT_EQ(wait(), 127);
  EXPECT_THAT(err(),
              HasSubstr("neither python3 nor python found in PATH; PYTHON=path names another interpreter"));
  variables_["PYTHON"] = folder_ / "nothing/python";
  start({"--num_procs", "1", folder_ / "train.py"});
  EXPECT_EQ(wait(), 127);
  EXPECT_THAT(err(), HasSubstr("nothing/python' not found"));
}

TEST_F(PythonLaunchTest, ForwardsTheExitCodeOfAScript) {
  if (::access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "this machine has no Python";
  // One write a rank: the lines of two ranks may meet anywhere else. Rank 0 writes before rank 1 fails.
  std::ofstream(folder_ / "fails.py") << "import os, sys, time\n"
                                         "os.write(1, f'arguments {sys.argv[1:]}\\n'.encode())\n"
                                         "time.sleep(int(os.environ['RANK']))\n"
                                         "sys.exit(int(os.environ['RANK']) * 5)\n";
  variables_["PYTHON"] = "/usr/bin/python3";
  start({"--num_procs", "2", folder_ / "fails.py", "x"});
  EXPECT_EQ(wait(), 5);
  EXPECT_THAT(out(), HasSubstr("arguments ['--local_rank=0', 'x']"));
  EXPECT_THAT(out(), HasSubstr("arguments ['--local_rank=1', 'x']"));
  EXPECT_TRUE(processes_left().empty());
}

TEST_F(PythonLaunchTest, RunsAModuleOfThisFolder) {
  if (::access("/usr/bin/python3", X_OK) != 0) GTEST_SKIP() << "this machine has no Python";
  fs::create_directories(folder_ / "package");
  std::ofstream(folder_ / "package/train.py")
      << "import os\nopen(os.environ['DIR'] + '/ran', 'w').write(__name__)\n";
  working_folder_ = folder_;
  variables_["PYTHON"] = "/usr/bin/python3";
  start({"--num_procs", "1", "--module", "package.train"});
  EXPECT_EQ(wait(), 0) << err();
  EXPECT_EQ(file("ran"), "__main__");
}

}  // namespace
}  // namespace deepspeed::launcher
