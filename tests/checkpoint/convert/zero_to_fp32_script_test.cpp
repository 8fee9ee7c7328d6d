// Calls the zero_to_fp32.py next to `latest`, as DeepSpeed's users call theirs.
#include "deepspeed/checkpoint/convert/zero_to_fp32_script.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include <ATen/ops/equal.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "deepspeed/checkpoint/convert/zero_to_fp32.h"
#include "deepspeed/checkpoint/weights/weight_source.h"

#include "tests/engine/make_engine.h"
#include "tests/places/places.h"
#include "tests/support/temporary_folder.h"

namespace deepspeed {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kPython = "/usr/bin/python3";

std::string text_of(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

class ZeroToFp32Script : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::access(kPython, X_OK) != 0) GTEST_SKIP() << "this machine has no Python";
  }

  void save(int stage) {
    const auto engine = testing::make_engine(testing::basic({{"zero_optimization", {{"stage", stage}}}}));
    testing::train_step(*engine);
    engine->save_checkpoint((folder_ / "run").string());
  }
  /// Runs a shell command in the checkpoint's folder; log() returns its output.
  int run(const std::string& command) const {
    const std::string line = "cd '" + (folder_ / "run").string() + "' && (" + command + ") > ../log 2>&1";
    return WEXITSTATUS(std::system(line.c_str()));
  }
  std::string log() const { return text_of(folder_ / "log"); }
  int convert(const std::string& arguments, const std::string& before = "env -u DEEPSPEED_CPP_HOME ") const {
    return run(before + kPython + " zero_to_fp32.py " + arguments);
  }
  void set_library_folder(const std::string& path) {
    std::string script = text_of(folder_ / "run/zero_to_fp32.py");
    const size_t line = script.find("LIBRARY_FOLDER = ");
    script.replace(line, script.find('\n', line) - line, "LIBRARY_FOLDER = \"" + path + "\"");
    folder_.write("run/zero_to_fp32.py", script);
  }
  void expect_weights(const fs::path& file, bool with_frozen = true) const {
    const auto source = checkpoint::open_weights(file);
    std::map<std::string, at::Tensor> found;
    for (size_t index = 0; index < source->weights().size(); ++index)
      found[source->weights()[index].name] = source->load(index);
    const auto expected =
        checkpoint::get_fp32_state_dict_from_zero_checkpoint(folder_ / "run", std::nullopt, !with_frozen);
    EXPECT_EQ(found.size(), expected.size());
    for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::equal(found.at(name), tensor)) << name;
  }

  testing::TemporaryFolder folder_;
};

TEST_F(ZeroToFp32Script, LiesExecutableBesideLatestWhereZeroIsOn) {
  save(0);
  EXPECT_FALSE(fs::exists(folder_ / "run/zero_to_fp32.py"));
  save(1);
  ASSERT_EQ(::access((folder_ / "run/zero_to_fp32.py").c_str(), X_OK), 0);
  const auto written = fs::last_write_time(folder_ / "run/zero_to_fp32.py");
  save(2);
  EXPECT_EQ(fs::last_write_time(folder_ / "run/zero_to_fp32.py"), written);  // written only once
  folder_.write("run/zero_to_fp32.py", "another");
  save(2);
  EXPECT_EQ(text_of(folder_ / "run/zero_to_fp32.py"), checkpoint::zero_to_fp32_script());
}

TEST_F(ZeroToFp32Script, TakesTheCommandLinesOfDeepSpeeds) {
  save(2);
  ASSERT_EQ(convert(". out"), 0) << log();
  expect_weights(folder_ / "run/out");
  ASSERT_EQ(convert(". safe --safe_serialization --max_shard_size 100"), 0) << log();
  EXPECT_TRUE(fs::exists(folder_ / "run/safe/model.safetensors.index.json"));
  expect_weights(folder_ / "run/safe");
  ASSERT_EQ(convert(". trained -t global_step1 --exclude_frozen_parameters -d"), 0) << log();
  EXPECT_THAT(log(), HasSubstr("first.weight: [13, 7]"));
  expect_weights(folder_ / "run/trained", /*with_frozen=*/false);
  EXPECT_EQ(convert(". out -t absent"), 1);
  EXPECT_THAT(log(), HasSubstr("absent"));
  EXPECT_EQ(run("env -u DEEPSPEED_CPP_HOME ./zero_to_fp32.py . direct"), 0) << log();
  EXPECT_EQ(convert("--help"), 0);
  EXPECT_THAT(log(), HasSubstr("--max_shard_size"));
  EXPECT_THAT(log(), HasSubstr("a checkpoint of any ZeRO stage"));
}

TEST_F(ZeroToFp32Script, EndsAsArgparseDoesWhereItsArgumentsCannotBe) {
  save(1);
  EXPECT_EQ(convert("."), 2);
  EXPECT_THAT(log(), HasSubstr("output is required"));
  EXPECT_EQ(convert(". out --no_such_flag"), 2);
  EXPECT_THAT(log(), HasSubstr("--no_such_flag"));
  EXPECT_EQ(convert(". out --max_shard_size much"), 2);
  EXPECT_THAT(log(), HasSubstr("much"));
}

TEST_F(ZeroToFp32Script, FindsTheProgramOrSaysHow) {
  save(1);
  const std::string build = testing::build_folder();
  const std::string no_path = "env -u DEEPSPEED_CPP_HOME PATH=/usr/bin:/bin ";
  set_library_folder(build);  // as in a wheel
  EXPECT_EQ(convert(". out", no_path), 0) << log();
  // If the library was moved away, PATH, the running Python and the variable remain.
  set_library_folder("/nowhere/lib");
  fs::create_directories(folder_ / "venv/bin");
  fs::create_symlink(kPython, folder_ / "venv/bin/python3");
  fs::create_symlink(build + "/bin/zero_to_fp32", folder_ / "venv/bin/zero_to_fp32");
  EXPECT_EQ(run(no_path + "../venv/bin/python3 zero_to_fp32.py . out"), 0) << log();
  EXPECT_EQ(convert(". out", no_path), 1);
  EXPECT_THAT(log(), AllOf(HasSubstr("neither in PATH nor beside this Python nor near '/nowhere/lib'"),
                           HasSubstr("DEEPSPEED_CPP_HOME")));
  EXPECT_EQ(convert(". out", "env -u DEEPSPEED_CPP_HOME PATH=/usr/bin:'" + build + "/bin' "), 0) << log();
  EXPECT_EQ(convert(". out", "env PATH=/usr/bin DEEPSPEED_CPP_HOME='" + build + "' "), 0) << log();
  EXPECT_EQ(convert(". out", "env DEEPSPEED_CPP_HOME=/nowhere "), 1);
  EXPECT_THAT(log(),
              HasSubstr("DEEPSPEED_CPP_HOME is /nowhere, but there is no program /nowhere/bin/zero_to_fp32"));
}

TEST_F(ZeroToFp32Script, OffersItsFunctionsToPythonPrograms) {
  save(2);
  ASSERT_EQ(
      run(std::string("env -u DEEPSPEED_CPP_HOME ") + kPython +
          " -c \"import zero_to_fp32; zero_to_fp32.convert_zero_checkpoint_to_fp32_state_dict('.', 'whole', "
          "max_shard_size=None, safe_serialization=True, tag='global_step1')\""),
      0)
      << log();
  expect_weights(folder_ / "run/whole/model.safetensors");
  EXPECT_NE(
      run(std::string("env -u DEEPSPEED_CPP_HOME ") + kPython +
          " -c \"import zero_to_fp32; zero_to_fp32.convert_zero_checkpoint_to_fp32_state_dict('.', 'out', "
          "tag='absent')\""),
      0);
  EXPECT_THAT(log(), AllOf(HasSubstr("RuntimeError"), HasSubstr("absent")));
}

}  // namespace
}  // namespace deepspeed
